/* What the ranks of a communicator of transport `virtual` share: operations under way, links, groups. */
#include "common/comm_virtual.h"

#include <stdlib.h>
#include <string.h>

/* ---- operations ---- */

static struct virtual_operation *take_operation(struct virtual_group *g, uint64_t number,
                                                bool is_message)
{
    struct virtual_operation *op = g->unused;
    if (op != NULL) {
        g->unused = op->next;
    } else {
        op = calloc(1, sizeof *op);
        if (op == NULL)
            return NULL;
        op->next_made = g->made;
        g->made = op;
    }
    memset(&op->each, 0, sizeof op->each);
    op->next = NULL;
    op->number = number;
    op->needed = is_message ? 2 : g->nranks;
    op->is_message = is_message;
    op->first_waiter = -1;
    return op;
}

static struct virtual_operation **collective_place(struct virtual_group *g, uint64_t number)
{
    return &g->collectives[number % g->capacity];
}

static bool grow_collectives(struct virtual_group *g)
{
    size_t capacity = g->capacity == 0 ? 16 : 2 * g->capacity;
    struct virtual_operation **larger = calloc(capacity, sizeof(struct virtual_operation *));
    if (larger == NULL)
        return false;
    for (uint64_t n = g->first; n < g->first + g->count; n++)
        larger[n % capacity] = *collective_place(g, n);
    free(g->collectives);
    g->collectives = larger;
    g->capacity = capacity;
    return true;
}

struct virtual_operation *virtual_group_collective(struct virtual_group *g, uint64_t number)
{
    if (number < g->first + g->count)
        return *collective_place(g, number);
    ASSERT_CMP(number, ==, g->first + g->count);
    if (g->count == g->capacity && !grow_collectives(g))
        return NULL;
    struct virtual_operation *op = take_operation(g, number, false);
    if (op == NULL)
        return NULL;
    *collective_place(g, number) = op;
    g->count++;
    return op;
}

void virtual_group_awaited(struct virtual_group *g, struct virtual_operation *op)
{
    if (++op->each.awaited < op->needed)
        return;
    if (!op->is_message)
        *collective_place(g, op->number) = NULL;
    while (g->count > 0 && *collective_place(g, g->first) == NULL) {
        g->first++;
        g->count--;
    }
    op->next = g->unused;
    g->unused = op;
}

/* ---- links ---- */

/* Messages over the same distance as this one that leave its port; or its node, over one NIC. */
static int count_flows(const struct virtual_group *g, int from, int to)
{
    const struct platform *p = g->platform;
    int n = g->nranks, distance = (to - from + n) % n, flows = 0;
    bool is_far = g->nodes[from] != g->nodes[to];
    int home = platform_port_of(p, g->team_ranks[from]);
    if (!is_far && platform_port_of(p, g->team_ranks[to]) == home)
        return 1;
    for (int r = 0; r < n; r++) {
        int peer = (r + distance) % n;
        if (is_far)
            flows += g->nodes[r] == g->nodes[from] && g->nodes[peer] != g->nodes[r];
        else
            flows += platform_port_of(p, g->team_ranks[r]) == home &&
                     platform_port_of(p, g->team_ranks[peer]) != home;
    }
    flows *= is_far ? g->place.nic_sharers : g->place.port_sharers;
    return is_far ? (flows + p->nics - 1) / p->nics : flows;
}

struct virtual_link *virtual_group_link(struct virtual_group *g, int from, int to)
{
    struct virtual_link **at = &g->links[from], *link;
    while ((link = *at) != NULL && link->to != to)
        at = &link->next;
    if (link != NULL) {
        *at = link->next;
    } else {
        link = calloc(1, sizeof *link);
        if (link == NULL)
            return NULL;
        link->to = to;
        link->flows = count_flows(g, from, to);
    }
    link->next = g->links[from];
    g->links[from] = link;
    return link;
}

struct virtual_operation *virtual_link_next(struct virtual_group *g, struct virtual_link *link,
                                            bool is_sender)
{
    uint64_t number = is_sender ? link->sends++ : link->receives++;
    struct virtual_operation *op = link->first;
    if (op != NULL && number >= op->number && number <= link->last->number) {
        /* The other side was here first: its oldest message is this one. */
        ASSERT_CMP(op->number, ==, number);
        link->first = op->next;
        return op;
    }
    op = take_operation(g, number, true);
    if (op == NULL)
        return NULL;
    if (link->first == NULL)
        link->first = op;
    else
        link->last->next = op;
    link->last = op;
    return op;
}

/* ---- groups ---- */

static void free_links(struct virtual_group *g)
{
    for (int r = 0; g->links != NULL && r < g->nranks; r++)
        while (g->links[r] != NULL) {
            struct virtual_link *next = g->links[r]->next;
            free(g->links[r]);
            g->links[r] = next;
        }
    free(g->links);
}

static void free_operations(struct virtual_group *g)
{
    while (g->made != NULL) {
        struct virtual_operation *next = g->made->next_made;
        free(g->made->parts);
        free(g->made);
        g->made = next;
    }
    free(g->collectives);
}

static void free_group(struct virtual_group *g)
{
    free_links(g);
    free_operations(g);
    free(g->team_ranks);
    free(g->nodes);
    free(g->node_members);
    free(g->moved);
    free(g->next_waiter);
    free(g->parts);
    free(g);
}

void virtual_group_release(struct virtual_group *g)
{
    if (--g->users == 0)
        free_group(g);
}

static bool allocate(struct virtual_group *g)
{
    size_t n = (size_t)g->nranks;
    g->team_ranks = calloc(n, sizeof *g->team_ranks);
    g->nodes = calloc(n, sizeof *g->nodes);
    g->node_members = calloc(n, sizeof *g->node_members);
    g->moved = calloc(n, sizeof *g->moved);
    g->next_waiter = calloc(n, sizeof *g->next_waiter);
    g->links = calloc(n, sizeof(struct virtual_link *));
    g->parts = calloc(n, sizeof *g->parts);
    return g->team_ranks && g->nodes && g->node_members && g->moved && g->next_waiter && g->links && g->parts;
}

static void count_members(struct virtual_group *g)
{
    int nodes = 0;
    for (int r = 0; r < g->nranks; r++)
        nodes = g->nodes[r] >= nodes ? g->nodes[r] + 1 : nodes;
    int *members = calloc((size_t)nodes, sizeof *members);
    ASSERT(members != NULL);
    for (int r = 0; r < g->nranks; r++)
        members[g->nodes[r]]++;
    for (int r = 0; r < g->nranks; r++)
        g->node_members[r] = members[g->nodes[r]];
    free(members);
}

struct virtual_group *virtual_group_new(const struct platform *platform, const int *team_ranks,
                                        int nranks, const int *group_of, int team_size)
{
    struct virtual_group *g = calloc(1, sizeof *g);
    if (g == NULL)
        return NULL;
    g->platform = platform;
    g->nranks = g->users = nranks;
    if (!allocate(g)) {
        free_group(g);
        return NULL;
    }
    for (int r = 0; r < nranks; r++) {
        g->team_ranks[r] = team_ranks[r];
        g->nodes[r] = platform_node_of(platform, team_ranks[r]);
    }
    count_members(g);
    g->place = comm_place_find(platform, team_ranks, nranks, group_of, team_size);
    return g;
}

/* ---- split ---- */

/* Members of a color, ordered by (key, parent rank), as team ranks. */
static int list_members(struct virtual_group *parent, int color, int *team_ranks)
{
    int n = 0;
    for (int r = 0; r < parent->nranks; r++) {
        struct virtual_part *part = &parent->parts[r];
        if (part->color != color)
            continue;
        int at = n++;
        for (; at > 0 && parent->parts[team_ranks[at - 1]].key > part->key; at--)
            team_ranks[at] = team_ranks[at - 1];
        team_ranks[at] = r;
    }
    for (int i = 0; i < n; i++) {
        parent->parts[team_ranks[i]].rank = i;
        team_ranks[i] = parent->team_ranks[team_ranks[i]];
    }
    return n;
}

static bool found_group(struct virtual_group *parent, int color, int *members, const int *group_of,
                        int team_size)
{
    int n = list_members(parent, color, members);
    struct virtual_group *child = virtual_group_new(parent->platform, members, n, group_of, team_size);
    for (int r = 0; r < parent->nranks && child != NULL; r++)
        if (parent->parts[r].color == color)
            parent->parts[r].group = child;
    return child != NULL;
}

void virtual_group_divide(struct virtual_group *parent, int team_size)
{
    int *members = calloc((size_t)parent->nranks, sizeof *members);
    int *group_of = malloc((size_t)team_size * sizeof *group_of);
    parent->split_failed = members == NULL || group_of == NULL;
    for (int r = 0; r < team_size && !parent->split_failed; r++)
        group_of[r] = -1;
    for (int r = 0; r < parent->nranks; r++) {
        parent->parts[r].group = NULL;
        if (!parent->split_failed)
            group_of[parent->team_ranks[r]] = parent->parts[r].color;
    }
    for (int r = 0; r < parent->nranks && !parent->split_failed; r++) {
        const struct virtual_part *part = &parent->parts[r];
        if (part->color >= 0 && part->group == NULL)
            parent->split_failed = !found_group(parent, part->color, members, group_of, team_size);
    }
    free(members);
    free(group_of);
}
