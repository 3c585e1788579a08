/* Rank arithmetic: contiguous spans, the first n mod parts one longer. */
#include "strategies/partition.h"

#include "common/status.h"

struct span partition_span(size_t n, int parts, int index)
{
    ASSERT_CMP(parts, >, 0);
    size_t small = n / (size_t)parts, longer = n % (size_t)parts, i = (size_t)index;
    size_t before = i < longer ? i : longer;
    return (struct span){i * small + before, small + (i < longer ? 1 : 0)};
}

int partition_owner(size_t n, int parts, size_t i)
{
    ASSERT_CMP(i, <, n);
    size_t small = n / (size_t)parts, longer = n % (size_t)parts;
    size_t in_longer = longer * (small + 1);
    if (i < in_longer)
        return (int)(i / (small + 1));
    return (int)(longer + (i - in_longer) / small);
}

void partition_table(size_t n, int parts, size_t unit, size_t *counts, size_t *offsets)
{
    for (int part = 0; part < parts; part++) {
        struct span span = partition_span(n, parts, part);
        counts[part] = span.count * unit;
        offsets[part] = span.first * unit;
    }
}

int layout_coordinate(const struct layout *layout, int rank, enum axis axis)
{
    int faster = 1;
    for (int a = 0; a < (int)axis; a++)
        faster *= layout->degree[a];
    return rank / faster % layout->degree[axis];
}

int layout_group_size(const struct layout *layout)
{
    return layout->nranks / layout->degree[AXIS_CFG];
}

int layout_group_rank(const struct layout *layout, int rank)
{
    return rank % layout_group_size(layout);
}
