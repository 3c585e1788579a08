/* Models with text (PixArt-alpha, arXiv:2310.00426): cross-attention to text tokens after the attention
 * half of a block, and adaLN-single: one modulation of the timestep for all blocks, to which each block adds
 * a table of its own. Private to dit.c and dit_load.c; docs/model.md has the definitions. */
#ifndef KERNELS_DIT_TEXT_H
#define KERNELS_DIT_TEXT_H

#include "kernels/dit.h"

static inline bool dit_has_text(const struct dit *dit)
{
    return dit->problem.shape->text_tokens > 0;
}

/* The modulation of every block of the part and of the final layer, from condition[1], the timestep's
 * embedding; and the text's keys and values in every block. */
enum status dit_text_condition(struct dit *) WARN_UNUSED;
/* partial = attention of hidden's rows to the text, projected, without bias. */
enum status dit_text_partial(struct dit *, int block, size_t rows, struct devmem hidden,
                             struct devmem partial) WARN_UNUSED;
/* hidden += cross-attention of hidden; does nothing in models without text, or when the part holds only
 * its heads of it. */
enum status dit_text_attend(struct dit *, int block, size_t rows, struct devmem hidden) WARN_UNUSED;

#endif
