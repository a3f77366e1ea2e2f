#include "client/cli/egraph/egraph_json.h"

#include <math.h>
#include <string.h>

#include "client/json_scan.h"
#include "core/base/hash.h"
#include "core/base/idmap.h"

#define SHOWN_MAX 80

typedef struct {
    sx_span name;   /* id */
    sx_span eclass; /* ptr NULL: not given */
    double cost;
    uint32_t child_first, child_count; /* in `child` */
} node_row;

typedef struct {
    sx_ctx *cx;
    sxc_scan scan;
    node_row *node;
    uint32_t node_count, node_capacity;
    sx_span *child;
    uint32_t child_count, child_capacity;
    sx_span *root;
    uint32_t root_count, root_capacity;
    bool has_nodes, has_roots;
} reader;

/* ---- the format ---- */

static int shown(sx_span text)
{
    return text.len < SHOWN_MAX ? (int)text.len : SHOWN_MAX;
}

static sx_code read_names(reader *r, sx_span **names, uint32_t *count, uint32_t *capacity)
{
    bool more;
    SX_TRY(sxc_scan_open(&r->scan, '[', ']', "a list of ids expected", &more));
    while (more) {
        if (*count == SX_XT_CLASSES_MAX) {
            return SX_FAIL(r->cx, SX_LIMIT, "more than %u ids in lists", SX_XT_CLASSES_MAX);
        }
        SX_TRY(sx_grow(r->cx, (void **)names, capacity, *count + 1, sizeof(**names)));
        SX_TRY(sxc_scan_text(&r->scan, &(*names)[*count]));
        (*count)++;
        SX_TRY(sxc_scan_more(&r->scan, ']', &more));
    }
    return SX_OK;
}

static sx_code read_node_field(reader *r, node_row *node, sx_span key, bool *subsumed)
{
    if (sx_span_is(key, "eclass")) {
        return sxc_scan_text(&r->scan, &node->eclass);
    }
    if (sx_span_is(key, "cost")) {
        SX_TRY(sxc_scan_number(&r->scan, &node->cost));
        if (!(node->cost >= 0) || isinf(node->cost)) {
            return SX_FAIL(r->cx, SX_INPUT, "node '%.*s': cost %g, at least 0 and finite",
                           shown(node->name), (const char *)node->name.ptr, node->cost);
        }
        return SX_OK;
    }
    if (sx_span_is(key, "children")) {
        node->child_first = r->child_count;
        SX_TRY(read_names(r, &r->child, &r->child_count, &r->child_capacity));
        node->child_count = r->child_count - node->child_first;
        return SX_OK;
    }
    if (sx_span_is(key, "subsumed")) {
        *subsumed = sxc_scan_peek(&r->scan) == 't';
        return sxc_scan_word(&r->scan, *subsumed ? "true" : "false");
    }
    return sxc_scan_skip(&r->scan);
}

static sx_code read_node(reader *r, sx_span name)
{
    node_row node = {.name = name, .cost = 1};
    bool subsumed = false;
    bool more;
    SX_TRY(sxc_scan_open(&r->scan, '{', '}', "a node expected", &more));
    while (more) {
        sx_span key;
        SX_TRY(sxc_scan_key(&r->scan, &key));
        SX_TRY(read_node_field(r, &node, key, &subsumed));
        SX_TRY(sxc_scan_more(&r->scan, '}', &more));
    }
    if (node.eclass.ptr == NULL) {
        return SX_FAIL(r->cx, SX_INPUT, "node '%.*s': no eclass", shown(name),
                       (const char *)name.ptr);
    }
    node.cost = subsumed ? (double)INFINITY : node.cost;
    SX_TRY(sx_grow(r->cx, (void **)&r->node, &r->node_capacity, r->node_count + 1, sizeof(node)));
    r->node[r->node_count++] = node;
    return SX_OK;
}

static sx_code read_nodes(reader *r)
{
    bool more;
    SX_TRY(sxc_scan_open(&r->scan, '{', '}', "an object of nodes expected", &more));
    while (more) {
        sx_span name;
        if (r->node_count == SX_XT_CLASSES_MAX) {
            return SX_FAIL(r->cx, SX_LIMIT, "more than %u nodes", SX_XT_CLASSES_MAX);
        }
        SX_TRY(sxc_scan_key(&r->scan, &name));
        SX_TRY(read_node(r, name));
        SX_TRY(sxc_scan_more(&r->scan, '}', &more));
    }
    return SX_OK;
}

static sx_code read_document(reader *r)
{
    bool more;
    SX_TRY(sxc_scan_open(&r->scan, '{', '}', "an object expected", &more));
    while (more) {
        sx_span key;
        SX_TRY(sxc_scan_key(&r->scan, &key));
        bool nodes = sx_span_is(key, "nodes");
        bool roots = sx_span_is(key, "root_eclasses");
        if ((nodes && r->has_nodes) || (roots && r->has_roots)) {
            return sxc_scan_bad(&r->scan, "\"nodes\" or \"root_eclasses\" a second time");
        }
        if (nodes) {
            SX_TRY(read_nodes(r));
        } else if (roots) {
            SX_TRY(read_names(r, &r->root, &r->root_count, &r->root_capacity));
        } else {
            SX_TRY(sxc_scan_skip(&r->scan));
        }
        r->has_nodes = r->has_nodes || nodes;
        r->has_roots = r->has_roots || roots;
        SX_TRY(sxc_scan_more(&r->scan, '}', &more));
    }
    if (sxc_scan_peek(&r->scan) != 0 || r->scan.at != r->scan.end) {
        return sxc_scan_bad(&r->scan, "bytes after the end");
    }
    return r->has_nodes && r->has_roots ? SX_OK
                                        : SX_FAIL(r->cx, SX_INPUT, "no \"%s\" in the object",
                                                  r->has_nodes ? "root_eclasses" : "nodes");
}

/* ---- from names to numbers ---- */

typedef struct {
    sx_idmap map;
    const sx_span *name; /* [id] */
} names;

static bool same_name(const void *self, uint32_t id, const void *probe)
{
    const names *n = self;
    return sx_span_equal(n->name[id], *(const sx_span *)probe);
}

static uint32_t find_name(const names *n, sx_span name)
{
    return sx_idmap_find(&n->map, sx_hash64(name, 0), same_name, n, &name);
}

static sx_code put_name(sx_ctx *cx, names *n, sx_span name, uint32_t id)
{
    return sx_idmap_put(cx, &n->map, sx_hash64(name, 0), id);
}

typedef struct {
    names nodes, classes;
    uint32_t *class_of; /* per row */
    uint32_t *row;      /* rows by class, then as they occur */
} tables;

static sx_code number_all(reader *r, sxc_egraph *g, tables *t, uint32_t *class_count)
{
    sx_ctx *cx = r->cx;
    size_t count = (size_t)r->node_count + 1;
    sx_span *node_name = SX_NEW_ARRAY(cx, sx_span, count);
    g->class_name = SX_NEW_ARRAY(cx, sx_span, count);
    t->class_of = SX_NEW_ARRAY(cx, uint32_t, count);
    t->row = SX_NEW_ARRAY(cx, uint32_t, count);
    if (node_name == NULL || g->class_name == NULL || t->class_of == NULL || t->row == NULL) {
        return cx->error.code;
    }
    t->nodes.name = node_name;
    t->classes.name = g->class_name;
    *class_count = 0;
    for (uint32_t i = 0; i < r->node_count; i++) {
        sx_span name = r->node[i].name;
        if (find_name(&t->nodes, name) != SX_IDMAP_NONE) {
            return SX_FAIL(cx, SX_INPUT, "node '%.*s' is there twice", shown(name),
                           (const char *)name.ptr);
        }
        node_name[i] = name;
        SX_TRY(put_name(cx, &t->nodes, name, i));
        uint32_t class_ = find_name(&t->classes, r->node[i].eclass);
        if (class_ == SX_IDMAP_NONE) {
            class_ = (*class_count)++;
            g->class_name[class_] = r->node[i].eclass;
            SX_TRY(put_name(cx, &t->classes, r->node[i].eclass, class_));
        }
        t->class_of[i] = class_;
    }
    return SX_OK;
}

static sx_code fill_nodes(reader *r, sxc_egraph *g, const tables *t)
{
    sx_xt *p = &g->problem;
    uint32_t edges = 0;
    for (uint32_t n = 0; n < p->node_count; n++) {
        const node_row *row = &r->node[t->row[n]];
        g->node_name[n] = row->name;
        p->cost[n] = row->cost;
        for (uint32_t k = 0; k < row->child_count; k++) {
            sx_span child = r->child[row->child_first + k];
            uint32_t id = find_name(&t->nodes, child);
            if (id == SX_IDMAP_NONE) {
                return SX_FAIL(r->cx, SX_INPUT, "node '%.*s': child '%.*s' is no node",
                               shown(row->name), (const char *)row->name.ptr, shown(child),
                               (const char *)child.ptr);
            }
            p->child[edges++] = t->class_of[id];
        }
        p->edge_first[n + 1] = edges;
    }
    return SX_OK;
}

static sx_code fill_roots(reader *r, sxc_egraph *g, const tables *t)
{
    sx_xt *p = &g->problem;
    uint8_t *seen = SX_NEW_ARRAY(r->cx, uint8_t, (size_t)p->class_count + 1);
    if (seen == NULL) {
        return r->cx->error.code;
    }
    p->root_count = 0;
    for (uint32_t i = 0; i < r->root_count; i++) {
        uint32_t class_ = find_name(&t->classes, r->root[i]);
        if (class_ == SX_IDMAP_NONE) {
            return SX_FAIL(r->cx, SX_INPUT, "root '%.*s' is no class", shown(r->root[i]),
                           (const char *)r->root[i].ptr);
        }
        if (seen[class_]++ == 0) {
            p->root[p->root_count++] = class_;
        }
    }
    return SX_OK;
}

sx_code sxc_egraph_parse(sx_ctx *cx, sx_span text, sxc_egraph *egraph)
{
    reader r = {.cx = cx, .scan = sxc_scan_of(cx, text)};
    tables t = {0};
    uint32_t class_count = 0;
    *egraph = (sxc_egraph){0};
    SX_TRY(read_document(&r));
    SX_TRY(number_all(&r, egraph, &t, &class_count));
    sx_xt *p = &egraph->problem;
    SX_TRY(sx_xt_init(cx, p, class_count, r.node_count, r.child_count, r.root_count));
    egraph->node_name = SX_NEW_ARRAY(cx, sx_span, (size_t)r.node_count + 1);
    if (egraph->node_name == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < r.node_count; i++) {
        p->node_first[t.class_of[i] + 1]++;
    }
    for (uint32_t c = 0; c < class_count; c++) {
        p->node_first[c + 1] += p->node_first[c];
    }
    for (uint32_t i = r.node_count;
         i-- > 0;) { /* from the back: the ends move down to the starts */
        t.row[--p->node_first[t.class_of[i] + 1]] = i;
    }
    for (uint32_t c = 0; c < class_count; c++) {
        p->node_first[c] = p->node_first[c + 1];
    }
    p->node_first[class_count] = r.node_count;
    SX_TRY(fill_nodes(&r, egraph, &t));
    SX_TRY(fill_roots(&r, egraph, &t));
    return sx_xt_check(cx, p);
}
