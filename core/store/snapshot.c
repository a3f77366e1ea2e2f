#include "core/store/snapshot.h"

#include <string.h>

#include "core/egraph/multi.h"
#include "core/egraph/pattern.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "records are written as they lie in memory");
_Static_assert(sizeof(sx_snapshot_header) == 96, "header layout");
_Static_assert(sizeof(sx_snapshot_section) == 32, "section layout");
_Static_assert(sizeof(sx_snapshot_node) == 8, "node layout");
_Static_assert(sizeof(sx_eg_reason) == 12, "reason layout");
_Static_assert(sizeof(sx_eg_position) == 8, "journal layout");
_Static_assert(sizeof(sx_snapshot_header) +
                       SX_SNAPSHOT_SECTIONS_MAX * sizeof(sx_snapshot_section) <=
                   SX_SNAPSHOT_PAGE,
               "header and table share a page");

#define FLAG_PROOFS 1u

static const char *section_name(uint32_t kind)
{
    static const char *const name[] = {"NODE",     "CHILD",      "CLASS",  "MADE",
                                       "PROOF_UP", "PROOF_RULE", "REASON", "REASON_NODE",
                                       "JOURNAL",  "LOG",        "ROOT",   "CHOICE"};
    return kind < SX_COUNT(name) ? name[kind] : "of the caller";
}

/* ---- storing ---- */

typedef struct {
    sx_ctx *cx;
    const sx_eg *eg;
    const sx_snapshot_source *source;
    bool proofs;
    uint32_t *number; /* new number of a node; SX_EG_NONE: dropped */
    uint32_t node_count, edge_count, choice_count;
    uint32_t log_first; /* oldest entry a journal has not seen */
    uint32_t log_count; /* entries stored: of nodes that are kept */
    sx_snapshot_header header;
    sx_snapshot_section section[SX_SNAPSHOT_SECTIONS_MAX];
    uint8_t *base;
} writer;

/* Entries of the log from log_first up to `end` that are stored. */
static uint32_t kept_changes(const writer *w, uint32_t end)
{
    uint32_t kept = 0;
    for (uint32_t i = w->log_first; i < end; i++) {
        kept += w->number[w->eg->changed[i]] != SX_EG_NONE ? 1 : 0;
    }
    return kept;
}

static sx_code count_all(writer *w)
{
    const sx_eg *eg = w->eg;
    const sx_snapshot_source *source = w->source;
    w->number = SX_NEW_ARRAY(w->cx, uint32_t, (size_t)eg->node_count + 1);
    if (w->number == NULL) {
        return w->cx->error.code;
    }
    for (uint32_t n = 0; n < eg->node_count; n++) {
        bool kept = w->proofs || eg->node[n].dead == 0;
        w->number[n] = kept ? w->node_count++ : SX_EG_NONE;
        w->edge_count += kept ? eg->node[n].arity : 0;
        bool chosen =
            source->choice != NULL && sx_eg_find(eg, n) == n && source->choice[n] != SX_EG_NONE;
        w->choice_count += chosen ? 1 : 0;
        SX_ASSERT(!chosen || eg->node[source->choice[n]].dead == 0);
    }
    w->log_first = eg->changed_count;
    for (uint32_t r = 0; source->set != NULL && r < source->set->rule_count; r++) {
        uint32_t seen = sx_eg_rule_position(eg, &source->set->rule[r]).changed;
        w->log_first = seen < w->log_first ? seen : w->log_first;
    }
    w->log_count = kept_changes(w, eg->changed_count);
    return SX_OK;
}

static void plan_section(writer *w, uint32_t kind, uint32_t item_size, uint64_t count)
{
    SX_ASSERT(kind < SX_SNAPSHOT_SECTIONS_MAX && w->section[kind].size == 0);
    w->section[kind] = (sx_snapshot_section){kind, item_size, 0, item_size * count, 0};
}

static void plan(writer *w)
{
    const sx_eg_ruleset *set = w->source->set;
    plan_section(w, SX_SNAPSHOT_NODE, sizeof(sx_snapshot_node), w->node_count);
    plan_section(w, SX_SNAPSHOT_CHILD, 4, w->edge_count);
    plan_section(w, SX_SNAPSHOT_CLASS, 4, w->node_count);
    if (w->proofs) {
        plan_section(w, SX_SNAPSHOT_MADE, 4, w->edge_count);
        plan_section(w, SX_SNAPSHOT_PROOF_UP, 4, w->node_count);
        plan_section(w, SX_SNAPSHOT_PROOF_RULE, 4, w->node_count);
    }
    if (set != NULL) {
        if (w->proofs) {
            plan_section(w, SX_SNAPSHOT_REASON, sizeof(sx_eg_reason), set->reason_count);
            plan_section(w, SX_SNAPSHOT_REASON_NODE, 4, set->reason_node_count);
        }
        plan_section(w, SX_SNAPSHOT_JOURNAL, sizeof(sx_eg_position), set->rule_count);
        plan_section(w, SX_SNAPSHOT_LOG, 4, w->log_count);
    }
    plan_section(w, SX_SNAPSHOT_ROOT, 4, w->source->root_count);
    plan_section(w, SX_SNAPSHOT_CHOICE, sizeof(sx_snapshot_choice), w->choice_count);
    for (uint32_t i = 0; i < w->source->part_count; i++) {
        const sx_snapshot_part *part = &w->source->part[i];
        SX_ASSERT(part->kind >= SX_SNAPSHOT_OWN && part->item_size > 0);
        SX_ASSERT(part->bytes.len % part->item_size == 0);
        plan_section(w, part->kind, part->item_size, part->bytes.len / part->item_size);
    }
}

/* Sections that hold something get their places; the total. */
static uint64_t place_sections(writer *w)
{
    uint64_t at = SX_SNAPSHOT_PAGE;
    for (uint32_t kind = 0; kind < SX_SNAPSHOT_SECTIONS_MAX; kind++) {
        sx_snapshot_section *s = &w->section[kind];
        if (s->size > 0) {
            s->offset = at;
            at += (s->size + SX_SNAPSHOT_PAGE - 1) / SX_SNAPSHOT_PAGE * SX_SNAPSHOT_PAGE;
            w->header.section_count++;
        }
    }
    return at;
}

static void *section_at(writer *w, uint32_t kind)
{
    return w->base + w->section[kind].offset;
}

/* The class of a node by its new number. The smallest node of a class lives, so it is never dropped. */
static uint32_t class_number(const writer *w, uint32_t node)
{
    uint32_t number = w->number[sx_eg_find(w->eg, node)];
    SX_ASSERT(number != SX_EG_NONE);
    return number;
}

static void write_nodes(writer *w)
{
    const sx_eg *eg = w->eg;
    sx_snapshot_node *node = section_at(w, SX_SNAPSHOT_NODE);
    uint32_t *child = section_at(w, SX_SNAPSHOT_CHILD);
    uint32_t *class_ = section_at(w, SX_SNAPSHOT_CLASS);
    uint32_t edge = 0;
    for (uint32_t n = 0; n < eg->node_count; n++) {
        uint32_t number = w->number[n];
        if (number == SX_EG_NONE) {
            continue;
        }
        const sx_eg_node *from = &eg->node[n];
        node[number] = (sx_snapshot_node){from->attr, from->op, from->arity, from->dead};
        class_[number] = class_number(w, n);
        w->header.class_count += class_[number] == number ? 1 : 0;
        w->header.live_count += from->dead == 0 ? 1 : 0;
        for (uint32_t k = 0; k < from->arity; k++) {
            child[edge++] = class_number(w, sx_eg_child(eg, n, k));
        }
    }
    SX_ASSERT(edge == w->edge_count);
}

static void write_proofs(writer *w)
{
    const sx_eg *eg = w->eg;
    const sx_eg_ruleset *set = w->source->set;
    uint32_t *made = section_at(w, SX_SNAPSHOT_MADE);
    uint32_t *up = section_at(w, SX_SNAPSHOT_PROOF_UP);
    uint32_t *rule = section_at(w, SX_SNAPSHOT_PROOF_RULE);
    for (uint32_t n = 0; n < eg->node_count; n++) {
        up[n] = sx_eg_why_of(eg, n).up;
        rule[n] = sx_eg_why_of(eg, n).rule;
        for (uint32_t k = 0; k < eg->node[n].arity; k++) {
            *made++ = sx_eg_made_child(eg, n, k);
        }
    }
    if (set != NULL && set->reason_count > 0) {
        memcpy(section_at(w, SX_SNAPSHOT_REASON), set->reason,
               set->reason_count * sizeof(sx_eg_reason));
    }
    if (set != NULL && set->reason_node_count > 0) {
        memcpy(section_at(w, SX_SNAPSHOT_REASON_NODE), set->reason_node,
               set->reason_node_count * sizeof(uint32_t));
    }
}

static void write_rest(writer *w)
{
    const sx_snapshot_source *source = w->source;
    const sx_eg *eg = w->eg;
    if (source->set != NULL) {
        sx_eg_position *journal = section_at(w, SX_SNAPSHOT_JOURNAL);
        uint32_t *log = section_at(w, SX_SNAPSHOT_LOG);
        for (uint32_t r = 0; r < source->set->rule_count; r++) {
            sx_eg_position seen = sx_eg_rule_position(eg, &source->set->rule[r]);
            uint32_t n = seen.node;
            while (n > 0 && w->number[n - 1] == SX_EG_NONE) {
                n--;
            }
            journal[r].node = n > 0 ? w->number[n - 1] + 1 : 0;
            journal[r].changed = kept_changes(w, seen.changed);
        }
        for (uint32_t i = w->log_first; i < eg->changed_count; i++) {
            if (w->number[eg->changed[i]] != SX_EG_NONE) {
                *log++ = w->number[eg->changed[i]];
            }
        }
    }
    uint32_t *root = section_at(w, SX_SNAPSHOT_ROOT);
    for (uint32_t i = 0; i < source->root_count; i++) {
        uint32_t number = w->number[source->root[i]];
        root[i] = number != SX_EG_NONE ? number : class_number(w, source->root[i]);
    }
    sx_snapshot_choice *choice = section_at(w, SX_SNAPSHOT_CHOICE);
    for (uint32_t n = 0; w->choice_count > 0 && n < eg->node_count; n++) {
        if (sx_eg_find(eg, n) == n && source->choice[n] != SX_EG_NONE) {
            *choice++ = (sx_snapshot_choice){w->number[n], w->number[source->choice[n]]};
        }
    }
    for (uint32_t i = 0; i < source->part_count; i++) {
        const sx_snapshot_part *part = &source->part[i];
        if (part->bytes.len > 0) {
            memcpy(section_at(w, part->kind), part->bytes.ptr, part->bytes.len);
        }
    }
}

static void write_header(writer *w, uint64_t size)
{
    sx_snapshot_header *h = &w->header;
    sx_snapshot_section *row = (void *)(w->base + sizeof(*h));
    memcpy(h->magic, SX_SNAPSHOT_MAGIC, sizeof(h->magic));
    memcpy(h->rules, w->source->rules.byte, sizeof(h->rules));
    h->order = SX_SNAPSHOT_ORDER;
    h->version = SX_SNAPSHOT_VERSION;
    h->size = size;
    h->stop = w->source->stop;
    h->node_count = w->node_count;
    h->edge_count = w->edge_count;
    h->rule_count = w->source->set != NULL ? w->source->set->rule_count : 0;
    h->flags = w->proofs ? FLAG_PROOFS : 0;
    for (uint32_t kind = 0; kind < SX_SNAPSHOT_SECTIONS_MAX; kind++) {
        sx_snapshot_section *s = &w->section[kind];
        if (s->size > 0) {
            s->digest = sx_hash64((sx_span){w->base + s->offset, (size_t)s->size}, 0);
            *row++ = *s;
        }
    }
    memcpy(w->base, h, sizeof(*h));
    h->digest = sx_hash64((sx_span){w->base, SX_SNAPSHOT_PAGE}, 0);
    memcpy(w->base, h, sizeof(*h));
}

sx_code sx_snapshot_store(sx_ctx *cx, const sx_eg *eg, const sx_snapshot_source *source,
                          sx_buf *bytes)
{
    SX_ASSERT(bytes->len == 0 && sx_eg_is_rebuilt(eg) && !(source->with_proofs && eg->unproven));
    writer w = {.cx = cx, .eg = eg, .source = source, .proofs = source->with_proofs};
    SX_TRY(count_all(&w));
    plan(&w);
    uint64_t size = place_sections(&w);
    if (size > bytes->limit) {
        return SX_FAIL(cx, SX_LIMIT, "snapshot: %llu bytes, at most %zu", (unsigned long long)size,
                       bytes->limit);
    }
    w.base = sx_buf_room(bytes, (size_t)size);
    SX_TRY(sx_buf_check(cx, bytes, "snapshot"));
    write_nodes(&w);
    if (w.proofs) {
        write_proofs(&w);
    }
    write_rest(&w);
    write_header(&w, size);
    return SX_OK;
}

/* ---- opening ---- */

static sx_code check_header(sx_ctx *cx, sx_span bytes, const sx_key *rules, sx_snapshot_header *h)
{
    if (bytes.len < SX_SNAPSHOT_PAGE || (uintptr_t)bytes.ptr % 8 != 0) {
        return SX_FAIL(cx, SX_CORRUPT, "snapshot: %zu bytes, at least %u, aligned to 8", bytes.len,
                       SX_SNAPSHOT_PAGE);
    }
    memcpy(h, bytes.ptr, sizeof(*h));
    if (memcmp(h->magic, SX_SNAPSHOT_MAGIC, sizeof(h->magic)) != 0 ||
        h->order != SX_SNAPSHOT_ORDER) {
        return SX_FAIL(cx, SX_CORRUPT, "snapshot: no e-graph of this byte order");
    }
    if (h->version != SX_SNAPSHOT_VERSION) {
        return SX_FAIL(cx, SX_ABSENT, "snapshot: form %u, this is %u", h->version,
                       SX_SNAPSHOT_VERSION);
    }
    if (h->size != bytes.len) {
        return SX_FAIL(cx, SX_CORRUPT, "snapshot: %zu bytes, its header says %llu", bytes.len,
                       (unsigned long long)h->size);
    }
    uint8_t page[SX_SNAPSHOT_PAGE];
    sx_snapshot_header blank = *h;
    blank.digest = 0;
    memcpy(page, bytes.ptr, sizeof(page));
    memcpy(page, &blank, sizeof(blank));
    if (sx_hash64((sx_span){page, sizeof(page)}, 0) != h->digest) {
        return SX_FAIL(cx, SX_CORRUPT, "snapshot header: checksum differs");
    }
    if (memcmp(h->rules, rules->byte, sizeof(h->rules)) != 0) {
        return SX_FAIL(cx, SX_ABSENT, "snapshot: made with another set of rules");
    }
    if (h->section_count > SX_SNAPSHOT_SECTIONS_MAX || h->node_count > SX_EG_NODES_MAX ||
        h->edge_count > INT32_MAX || h->stop > SX_STOP_CANCELLED ||
        (h->flags & ~FLAG_PROOFS) != 0) {
        return SX_FAIL(cx, SX_CORRUPT, "snapshot: %u sections, %u nodes, stop %u, flags %u",
                       h->section_count, h->node_count, h->stop, h->flags);
    }
    return SX_OK;
}

static sx_code check_section(sx_ctx *cx, sx_span bytes, const sx_snapshot_section *s,
                             uint32_t kind_after, uint64_t *end)
{
    const char *name = section_name(s->kind);
    if (s->kind >= SX_SNAPSHOT_SECTIONS_MAX || s->kind < kind_after) {
        return SX_FAIL(cx, SX_CORRUPT, "snapshot: section of kind %u after kind %u", s->kind,
                       kind_after);
    }
    if (s->offset % SX_SNAPSHOT_PAGE != 0 || s->offset < *end || s->offset > bytes.len ||
        s->size > bytes.len - s->offset || s->size == 0 || s->item_size == 0 ||
        s->size % s->item_size != 0) {
        return SX_FAIL(
            cx, SX_CORRUPT,
            "snapshot section %s: %llu bytes at %llu in records of %u, the whole has %zu", name,
            (unsigned long long)s->size, (unsigned long long)s->offset, s->item_size, bytes.len);
    }
    if (sx_hash64((sx_span){bytes.ptr + s->offset, (size_t)s->size}, 0) != s->digest) {
        return SX_FAIL(cx, SX_CORRUPT, "snapshot section %s: checksum differs", name);
    }
    *end = s->offset + s->size;
    return SX_OK;
}

sx_code sx_snapshot_open(sx_ctx *cx, sx_span bytes, const sx_key *rules, sx_snapshot *snapshot)
{
    SX_ASSERT(bytes.ptr != NULL || bytes.len == 0);
    *snapshot = (sx_snapshot){.bytes = bytes};
    SX_TRY(check_header(cx, bytes, rules, &snapshot->header));
    uint64_t end = SX_SNAPSHOT_PAGE;
    uint32_t kind_after = 0;
    for (uint32_t i = 0; i < snapshot->header.section_count; i++) {
        sx_snapshot_section s;
        memcpy(&s, bytes.ptr + sizeof(sx_snapshot_header) + i * sizeof(s), sizeof(s));
        SX_TRY(check_section(cx, bytes, &s, kind_after, &end));
        kind_after = s.kind + 1;
        snapshot->section[s.kind] = s;
    }
    return SX_OK;
}

sx_code sx_snapshot_rules(sx_ctx *cx, sx_span bytes, sx_key *rules)
{
    SX_ASSERT(bytes.ptr != NULL || bytes.len == 0);
    sx_snapshot_header header;
    if (bytes.len < sizeof(header) || memcmp(bytes.ptr, SX_SNAPSHOT_MAGIC, 8) != 0) {
        return SX_FAIL(cx, SX_CORRUPT, "not an e-graph: %zu bytes without the magic", bytes.len);
    }
    memcpy(&header, bytes.ptr, sizeof(header));
    memcpy(rules->byte, header.rules, sizeof(rules->byte));
    return SX_OK;
}

sx_code sx_snapshot_section_of(sx_ctx *cx, const sx_snapshot *snapshot, uint32_t kind,
                               uint32_t item_size, sx_span *bytes, uint32_t *count)
{
    SX_ASSERT(kind < SX_SNAPSHOT_SECTIONS_MAX && item_size > 0);
    const sx_snapshot_section *s = &snapshot->section[kind];
    if (s->size > 0 && (s->item_size != item_size || s->size / item_size > UINT32_MAX)) {
        return SX_FAIL(cx, SX_CORRUPT, "snapshot section %s: records of %u bytes, not %u",
                       section_name(kind), s->item_size, item_size);
    }
    *bytes = (sx_span){snapshot->bytes.ptr + s->offset, (size_t)s->size};
    *count = (uint32_t)(s->size / item_size);
    return SX_OK;
}

/* A section that must hold exactly `count` records. */
static sx_code exact_section(sx_ctx *cx, const sx_snapshot *snapshot, uint32_t kind,
                             uint32_t item_size, uint32_t count, const void **records)
{
    sx_span bytes;
    uint32_t found;
    SX_TRY(sx_snapshot_section_of(cx, snapshot, kind, item_size, &bytes, &found));
    if (found != count) {
        return SX_FAIL(cx, SX_CORRUPT, "snapshot section %s: %u records, not %u",
                       section_name(kind), found, count);
    }
    *records = bytes.ptr;
    return SX_OK;
}

/* ---- loading ---- */

/* Bounds and order of all nodes: afterwards every number may be followed. */
static sx_code check_nodes(sx_ctx *cx, const sx_snapshot_header *h, const sx_snapshot_node *node,
                           const uint32_t *child, const uint32_t *class_)
{
    uint64_t edges = 0;
    uint32_t classes = 0;
    uint32_t live = 0;
    for (uint32_t n = 0; n < h->node_count; n++) {
        const sx_snapshot_node *at = &node[n];
        uint32_t root = class_[n];
        if (root > n || class_[root] != root || at->op >= SX_EG_OPS_MAX ||
            at->arity > SX_EG_ARITY_MAX || at->dead > (root == n ? 0 : 1) ||
            edges + at->arity > h->edge_count) {
            return SX_FAIL(cx, SX_CORRUPT,
                           "e-node %u: class %u, operation %u, %u children, dead %u", n, root,
                           at->op, at->arity, at->dead);
        }
        for (uint32_t k = 0; k < at->arity; k++) {
            uint32_t c = child[edges + k];
            if (c >= n || class_[c] != c) {
                return SX_FAIL(cx, SX_CORRUPT, "e-node %u: child %u is %u, no class below it", n, k,
                               c);
            }
        }
        edges += at->arity;
        classes += root == n ? 1 : 0;
        live += at->dead == 0 ? 1 : 0;
    }
    if (edges != h->edge_count || classes != h->class_count || live != h->live_count) {
        return SX_FAIL(
            cx, SX_CORRUPT, "e-graph of %u edges, %u classes, %u nodes; found %llu, %u, %u",
            h->edge_count, h->class_count, h->live_count, (unsigned long long)edges, classes, live);
    }
    return SX_OK;
}

/* One edge of the forest: within a class, for a reason that can be. */
static sx_code check_reason(sx_ctx *cx, const sx_eg *eg, uint32_t n, uint32_t reason_count)
{
    uint32_t up = sx_eg_why_of(eg, n).up;
    uint32_t reason = sx_eg_why_of(eg, n).rule;
    bool good = up < eg->node_count && sx_eg_find(eg, up) == sx_eg_find(eg, n);
    if (good && up != n && reason == SX_EG_RULE_CONGRUENCE) {
        const sx_eg_node *a = &eg->node[n];
        const sx_eg_node *b = &eg->node[up];
        good = a->op == b->op && a->attr == b->attr && a->arity == b->arity;
        for (uint32_t k = 0; good && k < a->arity; k++) {
            good = sx_eg_child(eg, n, k) == sx_eg_child(eg, up, k);
        }
    } else if (good && up != n && reason < SX_EG_RULE_GIVEN) {
        good = reason < reason_count;
    }
    return good ? SX_OK
                : SX_FAIL(cx, SX_CORRUPT, "e-node %u: united with %u for reason %u", n, up, reason);
}

/* The forest of reasons spans every class: as many roots as classes, and no cycle. `state`: 0 new, else 1 +
 * the walk that met it. */
static sx_code check_forest(sx_ctx *cx, const sx_eg *eg, uint32_t class_count)
{
    uint32_t *state = SX_NEW_ARRAY(cx, uint32_t, (size_t)eg->node_count + 1);
    uint32_t roots = 0;
    if (state == NULL) {
        return cx->error.code;
    }
    for (uint32_t n = 0; n < eg->node_count; n++) {
        uint32_t at = n;
        while (state[at] == 0 && sx_eg_why_of(eg, at).up != at) {
            state[at] = n + 1;
            at = sx_eg_why_of(eg, at).up;
        }
        if (state[at] == n + 1) {
            return SX_FAIL(cx, SX_CORRUPT, "e-node %u: its reasons go round in a circle", at);
        }
        roots += sx_eg_why_of(eg, n).up == n ? 1 : 0;
    }
    if (roots != class_count) {
        return SX_FAIL(cx, SX_CORRUPT, "forest of %u trees for %u classes", roots, class_count);
    }
    return SX_OK;
}

/* The columns of the nodes, as they lie in the snapshot. */
typedef struct {
    const sx_snapshot_node *node;
    const uint32_t *child, *class_;
    const uint32_t *made, *up, *rule; /* with proofs only */
} columns;

/* A child was made from a node below, of the class that the child now is. */
static sx_code check_made(sx_ctx *cx, const sx_snapshot_header *h, const columns *c)
{
    for (uint32_t n = 0, e = 0; n < h->node_count; n++) {
        for (uint32_t k = 0; k < c->node[n].arity; k++, e++) {
            if (c->made[e] >= n || c->class_[c->made[e]] != c->child[e]) {
                return SX_FAIL(cx, SX_CORRUPT, "e-node %u: child %u was made from %u", n, k,
                               c->made[e]);
            }
        }
    }
    return SX_OK;
}

static sx_code check_reasons(sx_ctx *cx, const sx_snapshot *snapshot, const sx_eg *eg)
{
    const sx_snapshot_header *h = &snapshot->header;
    sx_span bytes;
    uint32_t reasons;
    SX_TRY(sx_snapshot_section_of(cx, snapshot, SX_SNAPSHOT_REASON, sizeof(sx_eg_reason), &bytes,
                                  &reasons));
    if (h->rule_count == 0) {
        reasons = SX_EG_RULE_GIVEN; /* the caller's own numbers */
    }
    for (uint32_t n = 0; n < h->node_count; n++) {
        SX_TRY(check_reason(cx, eg, n, reasons));
    }
    return check_forest(cx, eg, h->class_count);
}

static sx_code read_columns(sx_ctx *cx, const sx_snapshot *snapshot, bool proofs, columns *c)
{
    const sx_snapshot_header *h = &snapshot->header;
    const void *at[6] = {NULL};
    SX_TRY(exact_section(cx, snapshot, SX_SNAPSHOT_NODE, sizeof(sx_snapshot_node), h->node_count,
                         &at[0]));
    SX_TRY(exact_section(cx, snapshot, SX_SNAPSHOT_CHILD, 4, h->edge_count, &at[1]));
    SX_TRY(exact_section(cx, snapshot, SX_SNAPSHOT_CLASS, 4, h->node_count, &at[2]));
    if (proofs) {
        SX_TRY(exact_section(cx, snapshot, SX_SNAPSHOT_MADE, 4, h->edge_count, &at[3]));
        SX_TRY(exact_section(cx, snapshot, SX_SNAPSHOT_PROOF_UP, 4, h->node_count, &at[4]));
        SX_TRY(exact_section(cx, snapshot, SX_SNAPSHOT_PROOF_RULE, 4, h->node_count, &at[5]));
    }
    *c = (columns){at[0], at[1], at[2], at[3], at[4], at[5]};
    return SX_OK;
}

sx_code sx_snapshot_load(sx_ctx *cx, const sx_snapshot *snapshot, const sx_eg_analysis *analysis,
                         sx_eg *eg)
{
    SX_ASSERT(snapshot->bytes.len >= SX_SNAPSHOT_PAGE); /* it was opened */
    const sx_snapshot_header *h = &snapshot->header;
    bool proofs = (h->flags & FLAG_PROOFS) != 0;
    columns c;
    SX_TRY(read_columns(cx, snapshot, proofs, &c));
    SX_TRY(check_nodes(cx, h, c.node, c.child, c.class_));
    if (proofs) {
        SX_TRY(check_made(cx, h, &c));
    }
    uint32_t wide = 0;
    for (uint32_t n = 0; n < h->node_count; n++) {
        wide += c.node[n].arity > SX_EG_INLINE ? c.node[n].arity : 0;
    }
    SX_TRY(sx_eg_restore_begin(cx, eg, analysis, h->node_count, wide));
    for (uint32_t n = 0, e = 0; n < h->node_count; n++) {
        sx_eg_node content = {.attr = c.node[n].attr,
                              .op = (uint8_t)c.node[n].op,
                              .arity = c.node[n].arity,
                              .dead = c.node[n].dead};
        sx_eg_why why =
            proofs ? (sx_eg_why){c.up[n], c.rule[n]} : (sx_eg_why){c.class_[n], SX_EG_RULE_GIVEN};
        sx_eg_restore_node(eg, &content,
                           content.arity == 0 ? NULL
                           : proofs           ? c.made + e
                                              : c.child + e,
                           c.class_[n], why);
        e += content.arity;
    }
    if (proofs) {
        SX_TRY(check_reasons(cx, snapshot, eg));
    }
    return sx_eg_restore_end(cx, eg);
}

/* What a rule is said to have matched, walked as explanations walk it (explain.c): every step of theirs must
 * find what it expects. */
typedef struct {
    const sx_eg *eg;
    const sx_pattern *left;
    const uint32_t *node;
    uint32_t next, node_count;
    uint32_t bound[SX_PATTERN_NAMES_MAX];
} matched;

static bool name_fits(matched *m, uint8_t name, uint32_t term)
{
    if (name == SX_PATTERN_NONE) {
        return true;
    }
    if (m->bound[name] == SX_EG_NONE) {
        m->bound[name] = term;
    }
    return sx_eg_find(m->eg, m->bound[name]) == sx_eg_find(m->eg, term);
}

static bool part_fits(matched *m, uint32_t index, uint32_t term)
{
    const sx_pattern_part *part = &m->left->part[index];
    if (part->kind == SX_PART_VALUE) {
        return true;
    }
    if (!name_fits(m, part->name, term)) {
        return false;
    }
    if (part->kind == SX_PART_NAME) {
        return true;
    }
    uint32_t n = m->next < m->node_count ? m->node[m->next++] : SX_EG_NONE;
    if (n >= m->eg->node_count || sx_eg_find(m->eg, n) != sx_eg_find(m->eg, term)) {
        return false;
    }
    const sx_eg_node *at = &m->eg->node[n];
    if (!sx_bits_has(&part->ops, at->op) || at->arity < part->arity) {
        return false;
    }
    for (uint32_t k = 0; k < part->arity; k++) {
        if (!part_fits(m, part->child[k], sx_eg_made_child(m->eg, n, k))) {
            return false;
        }
    }
    return true;
}

static bool reason_fits(const sx_eg *eg, const sx_eg_ruleset *set, const sx_eg_reason *reason,
                        const uint32_t *node, uint32_t node_count)
{
    if (reason->rule >= SX_EG_RULE_GIVEN || reason->node_first > node_count ||
        reason->node_count > node_count - reason->node_first) {
        return false;
    }
    matched m = {.eg = eg, .node = node + reason->node_first, .node_count = reason->node_count};
    for (uint32_t i = 0; i < m.node_count; i++) {
        if (m.node[i] >= eg->node_count) {
            return false;
        }
    }
    if (reason->rule >= set->rule_count) { /* a step of another pass: two nodes, perhaps a third */
        return m.node_count == 2 || m.node_count == 3;
    }
    if (m.node_count == 0) {
        return true;
    }
    m.left = set->rule[reason->rule].left;
    uint32_t shared = sx_multi_shared(m.left);
    uint32_t common = SX_EG_NONE;
    bool bucket = sx_multi_is(m.left);
    bool is_shared = shared < m.left->name_count;
    do { /* once, or once for each member of a bucket */
        memset(m.bound, 0xFF, sizeof(m.bound));
        if (is_shared) {
            m.bound[shared] = common;
        }
        if (!part_fits(&m, m.left->root, m.node[m.next])) {
            return false;
        }
        common = is_shared ? m.bound[shared] : SX_EG_NONE;
    } while (bucket && m.next < m.node_count);
    uint32_t picked = m.node_count - m.next;
    return picked == 0 ||
           (set->rule[reason->rule].rule->build != NULL && picked <= SX_REWRITE_PICKS_MAX);
}

sx_code sx_snapshot_load_set(sx_ctx *cx, const sx_snapshot *snapshot, sx_eg *eg, sx_eg_ruleset *set)
{
    const sx_snapshot_header *h = &snapshot->header;
    sx_span reason, node, log;
    uint32_t reason_count, node_count, log_count;
    const void *journal;
    SX_ASSERT(set->reason_count == 0 && eg->changed_count == 0);
    SX_TRY(exact_section(cx, snapshot, SX_SNAPSHOT_JOURNAL, sizeof(sx_eg_position), set->rule_count,
                         &journal));
    SX_TRY(sx_snapshot_section_of(cx, snapshot, SX_SNAPSHOT_LOG, 4, &log, &log_count));
    SX_TRY(sx_snapshot_section_of(cx, snapshot, SX_SNAPSHOT_REASON, sizeof(sx_eg_reason), &reason,
                                  &reason_count));
    SX_TRY(sx_snapshot_section_of(cx, snapshot, SX_SNAPSHOT_REASON_NODE, 4, &node, &node_count));
    const uint32_t *entry = (const void *)log.ptr;
    SX_TRY(sx_region_grow(cx, (void **)&eg->changed, &eg->changed_capacity, log_count + 1,
                          sizeof(uint32_t)));
    for (uint32_t i = 0; i < log_count; i++) {
        if (entry[i] >= h->node_count) {
            return SX_FAIL(cx, SX_CORRUPT, "snapshot log: entry %u is e-node %u of %u", i, entry[i],
                           h->node_count);
        }
        eg->changed[i] = entry[i];
    }
    eg->changed_count = log_count;
    for (uint32_t r = 0; r < set->rule_count; r++) {
        sx_eg_position seen = ((const sx_eg_position *)journal)[r];
        if (seen.changed > log_count || seen.node > h->node_count) {
            return SX_FAIL(cx, SX_CORRUPT, "journal %u: %u entries seen of %u, %u nodes of %u", r,
                           seen.changed, log_count, seen.node, h->node_count);
        }
        sx_eg_rule_set_position(eg, &set->rule[r], seen);
    }
    const sx_eg_reason *row = (const void *)reason.ptr;
    const uint32_t *matched_node = (const void *)node.ptr;
    SX_TRY(sx_region_grow(cx, (void **)&set->reason, &set->reason_capacity, reason_count + 1,
                          sizeof(sx_eg_reason)));
    SX_TRY(sx_region_grow(cx, (void **)&set->reason_node, &set->reason_node_capacity,
                          node_count + 1, sizeof(uint32_t)));
    for (uint32_t i = 0; i < reason_count; i++) {
        if (!reason_fits(eg, set, &row[i], matched_node, node_count)) {
            return SX_FAIL(cx, SX_CORRUPT, "reason %u: rule %u, %u matched nodes", i, row[i].rule,
                           row[i].node_count);
        }
        set->reason[i] = row[i];
    }
    if (node_count > 0) {
        memcpy(set->reason_node, matched_node, node_count * sizeof(uint32_t));
    }
    set->reason_count = reason_count;
    set->reason_node_count = node_count;
    return SX_OK;
}

sx_code sx_snapshot_load_roots(sx_ctx *cx, const sx_snapshot *snapshot, const sx_eg *eg,
                               const uint32_t **root, uint32_t *root_count)
{
    SX_ASSERT(snapshot->header.node_count == eg->node_count); /* its own graph, nothing added yet */
    sx_span bytes;
    SX_TRY(sx_snapshot_section_of(cx, snapshot, SX_SNAPSHOT_ROOT, 4, &bytes, root_count));
    *root = (const void *)bytes.ptr;
    for (uint32_t i = 0; i < *root_count; i++) {
        if ((*root)[i] >= eg->node_count) {
            return SX_FAIL(cx, SX_CORRUPT, "root %u: e-node %u of %u", i, (*root)[i],
                           eg->node_count);
        }
    }
    return SX_OK;
}

sx_code sx_snapshot_load_choice(sx_ctx *cx, const sx_snapshot *snapshot, const sx_eg *eg,
                                uint32_t **choice)
{
    SX_ASSERT(snapshot->header.node_count == eg->node_count); /* its own graph, nothing added yet */
    sx_span bytes;
    uint32_t count;
    SX_TRY(sx_snapshot_section_of(cx, snapshot, SX_SNAPSHOT_CHOICE, sizeof(sx_snapshot_choice),
                                  &bytes, &count));
    *choice = SX_NEW_ARRAY(cx, uint32_t, (size_t)eg->node_count + 1);
    if (*choice == NULL) {
        return cx->error.code;
    }
    memset(*choice, 0xFF, eg->node_count * sizeof(uint32_t));
    for (uint32_t i = 0; i < count; i++) {
        const sx_snapshot_choice *at = (const sx_snapshot_choice *)(const void *)bytes.ptr + i;
        if (at->node >= eg->node_count || at->class_ >= eg->node_count ||
            eg->node[at->node].dead != 0 || sx_eg_find(eg, at->node) != at->class_) {
            return SX_FAIL(cx, SX_CORRUPT, "choice %u: e-node %u for class %u", i, at->node,
                           at->class_);
        }
        (*choice)[at->class_] = at->node;
    }
    return SX_OK;
}
