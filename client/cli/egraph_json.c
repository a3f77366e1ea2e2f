#include "client/cli/egraph_json.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "core/base/idmap.h"

#define DEPTH_MAX 64u
#define NUMBER_MAX 256u
#define SHOWN_MAX 80

typedef struct {
    sx_span name;   /* id */
    sx_span eclass; /* ptr NULL: not given */
    double cost;
    uint32_t child_first, child_count; /* in `child` */
} node_row;

typedef struct {
    sx_ctx *cx;
    const uint8_t *begin, *at, *end;
    node_row *node;
    uint32_t node_count, node_capacity;
    sx_span *child;
    uint32_t child_count, child_capacity;
    sx_span *root;
    uint32_t root_count, root_capacity;
    bool has_nodes, has_roots;
} reader;

/* ---- JSON ---- */

static sx_code bad(const reader *r, const char *what)
{
    return SX_FAIL(r->cx, SX_INPUT, "byte %zu: %s", (size_t)(r->at - r->begin), what);
}

static void skip_blanks(reader *r)
{
    while (r->at < r->end &&
           (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r')) {
        r->at++;
    }
}

/* The next byte that is no blank; 0 at the end. */
static uint8_t peek(reader *r)
{
    skip_blanks(r);
    return r->at < r->end ? *r->at : 0;
}

static sx_code expect(reader *r, uint8_t byte, const char *what)
{
    if (peek(r) != byte || r->at == r->end) {
        return bad(r, what);
    }
    r->at++;
    return SX_OK;
}

static bool read_hex(const uint8_t *p, uint32_t *value)
{
    *value = 0;
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t c = p[i];
        uint32_t digit = c - '0';
        if (c >= 'a' && c <= 'f') {
            digit = c - 'a' + 10;
        } else if (c >= 'A' && c <= 'F') {
            digit = c - 'A' + 10;
        }
        if (digit > 15 || (c > '9' && c < 'A')) {
            return false;
        }
        *value = *value << 4 | digit;
    }
    return true;
}

/* Four hex digits after "\u", with the second half of a pair; 0 bytes read: not a character. */
static size_t read_unicode(const uint8_t *p, const uint8_t *end, uint32_t *value)
{
    uint32_t low;
    if (end - p < 4 || !read_hex(p, value) || (*value >= 0xDC00 && *value < 0xE000)) {
        return 0;
    }
    if (*value < 0xD800 || *value >= 0xE000) {
        return 4;
    }
    if (end - p < 10 || p[4] != '\\' || p[5] != 'u' || !read_hex(p + 6, &low) || low < 0xDC00 ||
        low >= 0xE000) {
        return 0;
    }
    *value = 0x10000 + ((*value - 0xD800) << 10) + (low - 0xDC00);
    return 10;
}

static size_t put_utf8(uint8_t *to, uint32_t value)
{
    if (value < 0x80) {
        to[0] = (uint8_t)value;
        return 1;
    }
    size_t more = value < 0x800 ? 1 : value < 0x10000 ? 2 : 3;
    static const uint8_t lead[] = {0, 0xC0, 0xE0, 0xF0};
    to[0] = (uint8_t)(lead[more] | value >> (6 * more));
    for (size_t i = 1; i <= more; i++) {
        to[i] = (uint8_t)(0x80 | (value >> (6 * (more - i)) & 0x3F));
    }
    return more + 1;
}

/* Text with escapes, which is never longer than its source. */
static sx_code unescape(reader *r, sx_span raw, sx_span *text)
{
    static const char from[] = "\"\\/bfnrt";
    static const char into[] = "\"\\/\b\f\n\r\t";
    uint8_t *to = sx_alloc(r->cx, raw.len + 1);
    size_t count = 0;
    if (to == NULL) {
        return r->cx->error.code;
    }
    const uint8_t *end = raw.ptr + raw.len;
    for (const uint8_t *p = raw.ptr; p < end;) {
        if (*p != '\\') {
            to[count++] = *p++;
            continue;
        }
        const char *known = p[1] != 0 ? strchr(from, p[1]) : NULL;
        if (known != NULL) {
            to[count++] = (uint8_t)into[known - from];
            p += 2;
            continue;
        }
        uint32_t value;
        size_t used = p[1] == 'u' ? read_unicode(p + 2, end, &value) : 0;
        if (used == 0) {
            return bad(r, "an escape that is none of JSON");
        }
        count += put_utf8(to + count, value);
        p += 2 + used;
    }
    *text = (sx_span){to, count};
    return SX_OK;
}

static sx_code read_text(reader *r, sx_span *text)
{
    SX_TRY(expect(r, '"', "a string expected"));
    const uint8_t *start = r->at;
    bool escaped = false;
    while (r->at < r->end && *r->at != '"') {
        if (*r->at < 0x20) {
            return bad(r, "a control character in a string");
        }
        escaped = escaped || *r->at == '\\';
        r->at += *r->at == '\\' && r->at + 1 < r->end ? 2 : 1;
    }
    if (r->at >= r->end) {
        r->at = r->end;
        return bad(r, "a string without end");
    }
    *text = (sx_span){start, (size_t)(r->at - start)};
    r->at++;
    return escaped ? unescape(r, *text, text) : SX_OK;
}

static const uint8_t *digits(const uint8_t *p, const uint8_t *end)
{
    while (p < end && isdigit(*p) != 0) {
        p++;
    }
    return p;
}

/* The end of the number at r->at by the grammar of JSON, or NULL. */
static const uint8_t *number_end(const reader *r)
{
    const uint8_t *p = r->at + (r->at < r->end && *r->at == '-' ? 1 : 0);
    const uint8_t *whole = p;
    p = digits(p, r->end);
    if (p == whole || (*whole == '0' && p - whole > 1)) {
        return NULL;
    }
    if (p < r->end && *p == '.') {
        const uint8_t *fraction = p + 1;
        p = digits(fraction, r->end);
        if (p == fraction) {
            return NULL;
        }
    }
    if (p < r->end && (*p == 'e' || *p == 'E')) {
        p += p + 1 < r->end && (p[1] == '+' || p[1] == '-') ? 2 : 1;
        const uint8_t *power = p;
        p = digits(power, r->end);
        if (p == power) {
            return NULL;
        }
    }
    return p;
}

static sx_code read_number(reader *r, double *value)
{
    char text[NUMBER_MAX + 1];
    skip_blanks(r);
    const uint8_t *end = number_end(r);
    if (end == NULL) {
        return bad(r, "a number expected");
    }
    size_t len = (size_t)(end - r->at);
    if (len > NUMBER_MAX) {
        return SX_FAIL(r->cx, SX_LIMIT, "byte %zu: a number of %zu characters, at most %u",
                       (size_t)(r->at - r->begin), len, NUMBER_MAX);
    }
    memcpy(text, r->at, len);
    text[len] = '\0';
    *value = strtod(text, NULL);
    r->at = end;
    return SX_OK;
}

static sx_code read_word(reader *r, const char *word)
{
    size_t len = strlen(word);
    if ((size_t)(r->end - r->at) < len || memcmp(r->at, word, len) != 0) {
        return bad(r, "a value expected");
    }
    r->at += len;
    return SX_OK;
}

static sx_code skip_scalar(reader *r)
{
    sx_span text;
    double number;
    switch (peek(r)) {
    case '"': return read_text(r, &text);
    case 't': return read_word(r, "true");
    case 'f': return read_word(r, "false");
    case 'n': return read_word(r, "null");
    default: return read_number(r, &number);
    }
}

/* Behind a value inside a container: a comma, or as many closing brackets as come. */
static sx_code close_containers(reader *r, char *open, uint32_t *depth, bool *more)
{
    *more = false;
    while (*depth > 0 && !*more) {
        uint8_t byte = peek(r);
        if (byte == ',') {
            *more = true;
        } else if (byte != (open[*depth - 1] == '{' ? '}' : ']')) {
            return bad(r, "a comma or a closing bracket expected");
        } else {
            (*depth)--;
        }
        r->at++;
    }
    return SX_OK;
}

/* Any value, without recursion. */
static sx_code skip_value(reader *r)
{
    char open[DEPTH_MAX];
    uint32_t depth = 0;
    bool more = true;
    while (more) {
        if (depth > 0 && open[depth - 1] == '{') {
            sx_span key;
            SX_TRY(read_text(r, &key));
            SX_TRY(expect(r, ':', "a colon expected"));
        }
        uint8_t byte = peek(r);
        if (byte == '{' || byte == '[') {
            if (depth == DEPTH_MAX) {
                return SX_FAIL(r->cx, SX_LIMIT, "byte %zu: nested deeper than %u",
                               (size_t)(r->at - r->begin), DEPTH_MAX);
            }
            open[depth++] = (char)byte;
            r->at++;
            if (peek(r) != (byte == '{' ? '}' : ']')) {
                continue;
            }
        } else {
            SX_TRY(skip_scalar(r));
        }
        SX_TRY(close_containers(r, open, &depth, &more));
    }
    return SX_OK;
}

/* After a member or an item: true in *more at a comma, false at the closing bracket. */
static sx_code read_more(reader *r, uint8_t closing, bool *more)
{
    uint8_t byte = peek(r);
    if (r->at == r->end || (byte != ',' && byte != closing)) {
        return bad(r, "a comma or a closing bracket expected");
    }
    r->at++;
    *more = byte == ',';
    return SX_OK;
}

/* "[": *more is false if it is empty. */
static sx_code read_open(reader *r, uint8_t opening, uint8_t closing, const char *what, bool *more)
{
    SX_TRY(expect(r, opening, what));
    *more = peek(r) != closing;
    r->at += *more ? 0 : 1;
    return SX_OK;
}

static sx_code read_key(reader *r, sx_span *key)
{
    SX_TRY(read_text(r, key));
    return expect(r, ':', "a colon expected");
}

/* ---- the format ---- */

static int shown(sx_span text)
{
    return text.len < SHOWN_MAX ? (int)text.len : SHOWN_MAX;
}

static sx_code read_names(reader *r, sx_span **names, uint32_t *count, uint32_t *capacity)
{
    bool more;
    SX_TRY(read_open(r, '[', ']', "a list of ids expected", &more));
    while (more) {
        if (*count == SX_XT_CLASSES_MAX) {
            return SX_FAIL(r->cx, SX_LIMIT, "more than %u ids in lists", SX_XT_CLASSES_MAX);
        }
        SX_TRY(sx_grow(r->cx, (void **)names, capacity, *count + 1, sizeof(**names)));
        SX_TRY(read_text(r, &(*names)[*count]));
        (*count)++;
        SX_TRY(read_more(r, ']', &more));
    }
    return SX_OK;
}

static sx_code read_node_field(reader *r, node_row *node, sx_span key, bool *subsumed)
{
    if (sx_span_is(key, "eclass")) {
        return read_text(r, &node->eclass);
    }
    if (sx_span_is(key, "cost")) {
        SX_TRY(read_number(r, &node->cost));
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
        *subsumed = peek(r) == 't';
        return read_word(r, *subsumed ? "true" : "false");
    }
    return skip_value(r);
}

static sx_code read_node(reader *r, sx_span name)
{
    node_row node = {.name = name, .cost = 1};
    bool subsumed = false;
    bool more;
    SX_TRY(read_open(r, '{', '}', "a node expected", &more));
    while (more) {
        sx_span key;
        SX_TRY(read_key(r, &key));
        SX_TRY(read_node_field(r, &node, key, &subsumed));
        SX_TRY(read_more(r, '}', &more));
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
    SX_TRY(read_open(r, '{', '}', "an object of nodes expected", &more));
    while (more) {
        sx_span name;
        if (r->node_count == SX_XT_CLASSES_MAX) {
            return SX_FAIL(r->cx, SX_LIMIT, "more than %u nodes", SX_XT_CLASSES_MAX);
        }
        SX_TRY(read_key(r, &name));
        SX_TRY(read_node(r, name));
        SX_TRY(read_more(r, '}', &more));
    }
    return SX_OK;
}

static sx_code read_document(reader *r)
{
    bool more;
    SX_TRY(read_open(r, '{', '}', "an object expected", &more));
    while (more) {
        sx_span key;
        SX_TRY(read_key(r, &key));
        bool nodes = sx_span_is(key, "nodes");
        bool roots = sx_span_is(key, "root_eclasses");
        if ((nodes && r->has_nodes) || (roots && r->has_roots)) {
            return bad(r, "\"nodes\" or \"root_eclasses\" a second time");
        }
        if (nodes) {
            SX_TRY(read_nodes(r));
        } else if (roots) {
            SX_TRY(read_names(r, &r->root, &r->root_count, &r->root_capacity));
        } else {
            SX_TRY(skip_value(r));
        }
        r->has_nodes = r->has_nodes || nodes;
        r->has_roots = r->has_roots || roots;
        SX_TRY(read_more(r, '}', &more));
    }
    if (peek(r) != 0 || r->at != r->end) {
        return bad(r, "bytes after the end");
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
    static const uint8_t nothing[1];
    const uint8_t *begin = text.ptr != NULL ? text.ptr : nothing; /* of an empty file */
    reader r = {.cx = cx, .begin = begin, .at = begin, .end = begin + text.len};
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
