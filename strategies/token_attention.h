/* A block on some tokens of an image, with attention over the keys and values of others too: what
 * strategies that split tokens share.
 *
 * Keys and values stand apart from the queries, in rows K|V: T [tokens, batch, 2 * heads_width]. So
 * any range of tokens is contiguous with both halves of guidance, and one message carries keys and
 * values. An extent is a range of tokens of one frame. */
#ifndef STRATEGIES_TOKEN_ATTENTION_H
#define STRATEGIES_TOKEN_ATTENTION_H

#include "kernels/dit.h"

/* Elements of one token's row in K|V. */
static inline size_t token_attention_kv_width(const struct dit *dit)
{
    return (size_t)dit->problem.batch * 2 * dit->heads_width;
}
/* dit->qkv = q, k, v of the extent's rows; hidden: T [rows, D]. */
enum status token_attention_qkv(struct dit *, int block, const struct dit_extent *,
                                struct devmem hidden) WARN_UNUSED;
/* kv (the extent's first token's row) = the keys and values in dit->qkv. */
enum status token_attention_store(struct dit *, const struct dit_extent *,
                                  struct devmem kv) WARN_UNUSED;
/* hidden += gate * (proj(attention of the queries in dit->qkv over the keys' rows of kv) + bias);
 * kv: the row of the first of the keys. Uses dit->attended and dit->modulated. */
enum status token_attention_add(struct dit *, int block, const struct dit_extent *queries,
                                const struct dit_extent *keys, struct devmem kv,
                                struct devmem hidden) WARN_UNUSED;
/* The block's other half on the extent's rows: hidden += gate * (mlp + bias). Uses dit->modulated.
 */
enum status token_attention_mlp(struct dit *, int block, const struct dit_extent *,
                                struct devmem hidden) WARN_UNUSED;

#endif
