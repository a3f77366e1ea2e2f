/* bench_meet.c - what a stored program saves: loading its e-graph and finding an equal program in it, against
 * saturating that program.
 *
 * Equal programs: "exchanged", every sum and product with its operands in the other order (the stored graph
 * holds all of it), and "respelled", differences as sums with a negated operand and relu as a maximum besides
 * (nodes the graph does not hold, rounds of rewriting). Both sides take turns in every round; a share is the
 * median over the rounds of (load + insert) / saturate. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/optimize/fragments.h"
#include "core/store/meet.h"
#include "core/optimize/optimize.h"
#include "tests/bench/bench.h"
#include "tests/lib/gen_transformer.h"
#include "tests/lib/model.h"

#define ROUNDS_MAX 15u
#define CERTIFIED_NODES_MAX 3000u
#define SNAPSHOT_BYTES_MAX ((size_t)1 << 30)

static double cpu_seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* ---- programs ---- */

typedef struct {
    const char *name;
    sx_code (*make)(sx_ctx *cx, const void *self, sx_graph **graph);
    const void *self;
    bool whole; /* equal layers are not rolled: one e-graph */
} program;

static sx_code make_transformer(sx_ctx *cx, const void *self, sx_graph **graph)
{
    const uint32_t *layers = self;
    sx_transformer shape = sx_transformer_default(*layers);
    return sx_transformer_make(cx, &shape, graph);
}

static sx_code parse(sx_ctx *cx, sx_buf *text, sx_graph **graph)
{
    sx_code code = sx_buf_check(cx, text, "program");
    code = code == SX_OK ? sx_graph_parse(cx, sx_buf_span(text), graph) : code;
    sx_buf_fini(text);
    return code;
}

static sx_code make_model(sx_ctx *cx, const void *self, sx_graph **graph)
{
    sx_buf text;
    sx_buf_init(&text, SX_TEXT_BYTES_MAX);
    SX_TRY(sx_test_model_text(cx, self, &text));
    return parse(cx, &text, graph);
}

typedef struct {
    sx_buf text;
    uint32_t next; /* number of the next value */
    uint32_t side, channels;
} conv_writer;

/* relu(batch_norm(convolution)) or without the relu; *x is the value before and after. */
static void put_conv(conv_writer *w, uint32_t to, uint32_t stride, bool relu, uint32_t *x)
{
    uint32_t n = w->next;
    uint32_t side = w->side / stride;
    sx_buf_print(
        &w->text,
        "%%%u = parameter {name = \"w%u\", weight = 1} : f32[%u, %u, 3, 3]\n"
        "%%%u = convolution(%%%u, %%%u) {stride = [%u, %u], low = [%u, %u], high = [1, 1], "
        "dilation = [1, 1], groups = 1} : f32[batch, %u, %u, %u]\n",
        n, n, to, w->channels, n + 1, *x, n, stride, stride, 2 - stride, 2 - stride, to, side,
        side);
    for (uint32_t i = 0; i < 4; i++) {
        sx_buf_print(&w->text, "%%%u = parameter {name = \"n%u\", weight = 1} : f32[%u]\n",
                     n + 2 + i, n + 2 + i, to);
    }
    sx_buf_print(&w->text,
                 "%%%u = batch_norm(%%%u, %%%u, %%%u, %%%u, %%%u) {axis = 1, eps = 1e-05} : "
                 "f32[batch, %u, %u, %u]\n",
                 n + 6, n + 1, n + 2, n + 3, n + 4, n + 5, to, side, side);
    w->next = n + 7;
    w->side = side;
    w->channels = to;
    *x = n + 6;
    if (relu) {
        sx_buf_print(&w->text, "%%%u = relu(%%%u) : f32[batch, %u, %u, %u]\n", w->next, *x, to,
                     side, side);
        *x = w->next++;
    }
}

/* Residual blocks in three stages of 16, 32 and 64 channels, as image classifiers have them. */
static sx_code make_convnet(sx_ctx *cx, const void *self, sx_graph **graph)
{
    const uint32_t *blocks = self;
    conv_writer w = {.next = 1, .side = 32, .channels = 3};
    uint32_t x = 0;
    sx_buf_init(&w.text, SX_TEXT_BYTES_MAX);
    sx_buf_print(&w.text, "sx 1\ngraph \"convnet\" (batch in [1, 64]) {\n"
                          "%%0 = parameter {name = \"x\", weight = 0} : f32[batch, 3, 32, 32]\n");
    put_conv(&w, 16, 1, true, &x);
    for (uint32_t stage = 0; stage < 3; stage++) {
        if (stage > 0) {
            put_conv(&w, w.channels * 2, 2, true, &x);
        }
        for (uint32_t block = 0; block < *blocks; block++) {
            uint32_t skip = x;
            put_conv(&w, w.channels, 1, true, &x);
            put_conv(&w, w.channels, 1, false, &x);
            sx_buf_print(&w.text,
                         "%%%u = add(%%%u, %%%u) : f32[batch, %u, %u, %u]\n"
                         "%%%u = relu(%%%u) : f32[batch, %u, %u, %u]\n",
                         w.next, x, skip, w.channels, w.side, w.side, w.next + 1, w.next,
                         w.channels, w.side, w.side);
            x = w.next + 1;
            w.next += 2;
        }
    }
    sx_buf_print(&w.text, "return %%%u as \"y\"\n}\n", x);
    return parse(cx, &w.text, graph);
}

/* ---- equal programs ---- */

typedef struct {
    sx_ctx *cx;
    const sx_graph *from;
    sx_graph *to;
    sx_node_id *made;
} speller;

/* Node `i` of s->from in other words. */
static sx_code spell(speller *s, uint32_t i, bool respell)
{
    const sx_node *node = &s->from->node[i];
    const sx_attr *attr = sx_graph_attr(s->from, node);
    const sx_attr none = {0};
    sx_node_id x[SX_INPUTS_MAX];
    for (uint32_t k = 0; k < node->input_count; k++) {
        x[k] = s->made[sx_graph_input(s->from, node, k).i];
    }
    if (node->op == SX_OP_ADD || node->op == SX_OP_MULTIPLY) {
        sx_node_id first = x[0];
        x[0] = x[1];
        x[1] = first;
    }
    if (respell && node->op == SX_OP_SUBTRACT) {
        SX_TRY(sx_graph_add(s->cx, s->to, SX_OP_NEGATE, &none, &x[1], 1, &x[1]));
        return sx_graph_add(s->cx, s->to, SX_OP_ADD, &none, x, 2, &s->made[i]);
    }
    if (respell && node->op == SX_OP_RELU) {
        static const uint8_t zero[8];
        sx_attr constant = {.present = SX_A(data) | SX_A(type), .type = node->type};
        constant.data = (sx_span){zero, sx_dtype_bytes(node->type.dtype)};
        SX_TRY(sx_graph_add(s->cx, s->to, SX_OP_CONSTANT, &constant, NULL, 0, &x[1]));
        return sx_graph_add(s->cx, s->to, SX_OP_MAXIMUM, &none, x, 2, &s->made[i]);
    }
    return sx_graph_add(s->cx, s->to, node->op, attr, x, node->input_count, &s->made[i]);
}

static sx_code make_equal(sx_ctx *cx, const sx_graph *from, bool respell, sx_graph **equal)
{
    speller s = {.cx = cx, .from = from, .made = SX_NEW_ARRAY(cx, sx_node_id, from->node_count)};
    if (s.made == NULL) {
        return cx->error.code;
    }
    SX_TRY(sx_graph_make(cx, from->name, NULL, &s.to));
    for (uint32_t i = 0; i < from->symbol_count; i++) {
        const sx_symbol *symbol = &from->symbol[i];
        uint32_t index;
        SX_TRY(sx_graph_add_symbol(cx, s.to, symbol->name, symbol->low, symbol->high, &index));
    }
    for (uint32_t i = 0; i < from->node_count; i++) {
        SX_TRY(spell(&s, i, respell));
    }
    for (uint32_t i = 0; i < from->output_count; i++) {
        SX_TRY(sx_graph_add_output(cx, s.to, from->output[i].name, s.made[from->output[i].node.i]));
    }
    return sx_graph_canon(cx, s.to, equal);
}

/* ---- measuring ---- */

typedef struct {
    double saturate[ROUNDS_MAX], load[ROUNDS_MAX], insert[ROUNDS_MAX], share[ROUNDS_MAX];
    double certified; /* insert with a certificate */
    size_t bytes;
    uint32_t nodes, inserted, rounds;
} sample;

static sx_code page_aligned(sx_ctx *cx, const sx_buf *buf, sx_span *mapped)
{
    uint8_t *copy = sx_alloc(cx, buf->len + SX_SNAPSHOT_PAGE);
    if (copy == NULL) {
        return cx->error.code;
    }
    copy += (SX_SNAPSHOT_PAGE - (uintptr_t)copy % SX_SNAPSHOT_PAGE) % SX_SNAPSHOT_PAGE;
    memcpy(copy, buf->ptr, buf->len);
    *mapped = (sx_span){copy, buf->len};
    return SX_OK;
}

/* The stored program as one e-graph: loaded, then met. */
static sx_code meet_whole(sx_ctx *cx, sx_span stored, const sx_graph *asked,
                          const sx_optimize_options *options, bool certified, double *load,
                          double *insert, sx_meeting *meeting)
{
    bool enabled[SX_RULE_COUNT];
    sx_library_graph *library = SX_NEW(cx, sx_library_graph);
    if (library == NULL) {
        return cx->error.code;
    }
    SX_TRY(sx_optimize_rules(cx, options, enabled));
    double start = cpu_seconds();
    SX_TRY(sx_library_load(cx, stored, &options->snapshot_rules, sx_meet_kernels(asked, certified),
                           library));
    double loaded = cpu_seconds();
    SX_TRY(sx_meet(cx, library, asked, &(sx_meet_options){enabled, certified, true}, meeting));
    *load = loaded - start;
    *insert = cpu_seconds() - loaded;
    return SX_OK;
}

/* What was stored of a program of equal layers: entries in one run of bytes, and what each may equal. */
#define PARTS_MAX 32u
typedef struct {
    sx_optimize_place place[PARTS_MAX];
    sx_optimize_kept kept[PARTS_MAX];
    sx_span family[PARTS_MAX]; /* of the place, as text */
    sx_optimize_keeper keeper;
} stored_parts;
static stored_parts parts;

static sx_code family_of(sx_ctx *cx, const sx_graph *graph, sx_span *family)
{
    sx_buf text;
    sx_buf_init(&text, SX_TEXT_BYTES_MAX);
    sx_code code = sx_library_family(cx, graph, &text);
    const char *copy = sx_alloc_text(cx, sx_buf_span(&text));
    *family = (sx_span){(const uint8_t *)copy, text.len};
    sx_buf_fini(&text);
    return code == SX_OK && copy == NULL ? cx->error.code : code;
}

/* Every part is wanted. */
static sx_code want_parts(sx_ctx *cx, const sx_graph *graph, sx_buf *bytes,
                          sx_optimize_options *options)
{
    sx_pieces pieces;
    SX_TRY(sx_pieces_find(cx, graph, &pieces));
    parts.keeper = (sx_optimize_keeper){.place = parts.place,
                                        .place_count = pieces.count,
                                        .bytes_max = SNAPSHOT_BYTES_MAX,
                                        .bytes = bytes,
                                        .kept = parts.kept};
    if (pieces.count > PARTS_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "%u parts, at most %u", pieces.count, PARTS_MAX);
    }
    for (uint32_t i = 0; i < pieces.count; i++) {
        parts.place[i].part = pieces.piece[i].key;
        SX_TRY(family_of(cx, pieces.piece[i].program, &parts.family[i]));
    }
    options->keeper = &parts.keeper;
    return SX_OK;
}

/* The entries that each part of `asked` may equal. */
static sx_code list_stored(sx_ctx *cx, sx_span stored, const sx_graph *asked, sx_stored_part *list,
                           uint32_t *count)
{
    sx_pieces pieces;
    SX_TRY(sx_pieces_find(cx, asked, &pieces));
    *count = 0;
    for (uint32_t i = 0; i < pieces.count; i++) {
        sx_span family;
        SX_TRY(family_of(cx, pieces.piece[i].program, &family));
        for (uint32_t k = 0; k < parts.keeper.kept_count; k++) {
            uint32_t place = 0;
            while (!sx_key_equal(&parts.place[place].part, &parts.kept[k].part)) {
                place++;
            }
            if (sx_span_equal(family, parts.family[place]) && *count < SX_FRAGMENTS_STORED_MAX) {
                list[(*count)++] = (sx_stored_part){
                    pieces.piece[i].key, {stored.ptr + parts.kept[k].offset, parts.kept[k].size}};
            }
        }
    }
    return SX_OK;
}

static sx_code meet_parts(sx_ctx *cx, sx_span stored, const sx_graph *asked,
                          const sx_device *device, sx_optimize_options *options, double *seconds,
                          sx_meeting *meeting)
{
    sx_stored_part list[SX_FRAGMENTS_STORED_MAX];
    sx_fragments fragments;
    sx_optimize_report report;
    sx_graph *better;
    uint32_t count;
    SX_TRY(list_stored(cx, stored, asked, list, &count));
    double start = cpu_seconds();
    SX_TRY(sx_fragments_find(cx, asked, options, list, count, &fragments));
    options->fragments = &fragments;
    SX_TRY(sx_optimize(cx, asked, device, options, &better, &report));
    *seconds = cpu_seconds() - start;
    if (fragments.of[0].met) {
        *meeting = *fragments.of[0].meeting;
    }
    return SX_OK;
}

/* One round in an arena of its own: the equal program saturated, then met in what is stored. */
static sx_code measure(const program *p, bool respell, sx_span stored, uint32_t round, sample *out)
{
    sx_ctx cx;
    sx_graph *graph, *canonical, *asked, *better;
    sx_optimize_options options = sx_optimize_defaults();
    sx_optimize_report report;
    sx_meeting meeting = {0};
    const sx_device *device;
    double unused;
    options.whole = p->whole;
    sx_ctx_init(&cx, (size_t)16 << 30);
    cx.fuel = UINT64_MAX;
    sx_code code = sx_device_find(&cx, SX_SPAN_LITERAL("x86-64-v4"), &device);
    code = code == SX_OK ? p->make(&cx, p->self, &graph) : code;
    code = code == SX_OK ? sx_graph_canon(&cx, graph, &canonical) : code;
    code = code == SX_OK ? make_equal(&cx, canonical, respell, &asked) : code;
    double start = cpu_seconds();
    code = code == SX_OK ? sx_optimize(&cx, asked, device, &options, &better, &report) : code;
    out->saturate[round] = cpu_seconds() - start;
    if (code == SX_OK && !p->whole) {
        out->load[round] = 0;
        code = meet_parts(&cx, stored, asked, device, &options, &out->insert[round], &meeting);
    } else if (code == SX_OK) {
        code = meet_whole(&cx, stored, asked, &options, false, &out->load[round],
                          &out->insert[round], &meeting);
    }
    out->share[round] = (out->load[round] + out->insert[round]) / out->saturate[round];
    out->inserted = meeting.inserted;
    out->rounds = meeting.rounds;
    bool met = meeting.met;
    if (code == SX_OK && met && p->whole && out->nodes <= CERTIFIED_NODES_MAX && round == 0) {
        code = meet_whole(&cx, stored, asked, &options, true, &unused, &out->certified, &meeting);
        met = meeting.met;
    }
    if (code != SX_OK || !met) {
        (void)fprintf(stderr, "symplex-bench: snapshot-%s: %s\n", p->name,
                      code != SX_OK ? cx.error.text : "the equal program was not found");
        code = code == SX_OK ? SX_INTERNAL : code;
    }
    sx_ctx_fini(&cx);
    return code;
}

static void put(const sx_bench_options *options, const char *case_name, const char *metric,
                double value, const char *unit)
{
    sx_bench_put(options, &(sx_bench_row){.bench = "egraph",
                                          .case_name = case_name,
                                          .metric = metric,
                                          .value = value,
                                          .unit = unit});
}

static sx_code run_equal(const sx_bench_options *options, const program *p, bool respell,
                         sx_span stored, uint32_t nodes)
{
    static sample out;
    char name[64];
    uint32_t rounds = options->rounds < ROUNDS_MAX ? options->rounds : ROUNDS_MAX;
    rounds = rounds == 0 ? 1 : rounds;
    out = (sample){.nodes = nodes};
    (void)snprintf(name, sizeof(name), "snapshot-%s%s", p->name, respell ? "-respelled" : "");
    for (uint32_t round = 0; round < rounds; round++) {
        sx_code code = measure(p, respell, stored, round, &out);
        if (code != SX_OK) {
            return code;
        }
    }
    put(options, name, "nodes", nodes, "count");
    put(options, name, "bytes", (double)stored.len, "B");
    if (p->whole) {
        put(options, name, "inserted", out.inserted, "count");
        put(options, name, "rounds", out.rounds, "count");
    }
    put(options, name, "saturate-and-extract", sx_bench_median(out.saturate, rounds), "s");
    if (p->whole) {
        put(options, name, "load", sx_bench_median(out.load, rounds), "s");
        put(options, name, "insert", sx_bench_median(out.insert, rounds), "s");
    } else {
        put(options, name, "meet", sx_bench_median(out.insert, rounds), "s");
    }
    if (out.certified > 0) {
        put(options, name, "insert-and-certify", out.certified, "s");
    }
    put(options, name, "share", sx_bench_median(out.share, rounds), "ratio");
    return SX_OK;
}

/* Stored once; then both equal programs. */
static sx_code run_program(const sx_bench_options *options, const program *p)
{
    sx_ctx cx;
    sx_buf bytes;
    sx_graph *graph, *canonical, *better;
    sx_optimize_options store = sx_optimize_defaults();
    sx_optimize_report report;
    const sx_device *device;
    sx_span stored = {0};
    sx_buf_init(&bytes, SNAPSHOT_BYTES_MAX);
    store.whole = p->whole;
    store.snapshot = p->whole ? &bytes : NULL;
    sx_ctx_init(&cx, (size_t)16 << 30);
    cx.fuel = UINT64_MAX;
    sx_code code = sx_device_find(&cx, SX_SPAN_LITERAL("x86-64-v4"), &device);
    code = code == SX_OK ? p->make(&cx, p->self, &graph) : code;
    code = code == SX_OK ? sx_graph_canon(&cx, graph, &canonical) : code;
    code = code == SX_OK && !p->whole ? want_parts(&cx, canonical, &bytes, &store) : code;
    code = code == SX_OK ? sx_optimize(&cx, canonical, device, &store, &better, &report) : code;
    code = code == SX_OK ? page_aligned(&cx, &bytes, &stored) : code;
    if (code != SX_OK) {
        (void)fprintf(stderr, "symplex-bench: snapshot-%s: %s\n", p->name, cx.error.text);
    }
    for (uint32_t respell = 0; respell < (p->whole ? 2 : 1) && code == SX_OK; respell++) {
        code = run_equal(options, p, respell != 0, stored, report.nodes);
    }
    sx_buf_fini(&bytes);
    sx_ctx_fini(&cx);
    return code;
}

/* ---- layers of one program for another ---- */

#define SHALLOW_LAYERS 6u
#define DEEP_LAYERS 24u

static sx_code make_model_of(sx_ctx *cx, bool deep, sx_graph **canonical)
{
    sx_transformer shape = sx_transformer_default(deep ? DEEP_LAYERS : SHALLOW_LAYERS);
    sx_graph *graph;
    if (deep) { /* another embedding, another head, and one layer that is not stored */
        shape.vocab = 113;
        shape.odd_layer = 5;
    }
    SX_TRY(sx_transformer_make(cx, &shape, &graph));
    return sx_graph_canon(cx, graph, canonical);
}

typedef struct {
    double alone[ROUNDS_MAX], met[ROUNDS_MAX], share[ROUNDS_MAX];
    uint32_t nodes_alone, nodes_met, parts_met, parts;
} layers_sample;

static sx_code measure_layers(sx_span stored, uint32_t round, layers_sample *out)
{
    sx_ctx cx;
    sx_graph *asked, *better;
    sx_optimize_options options = sx_optimize_defaults();
    sx_optimize_report report;
    sx_stored_part list[SX_FRAGMENTS_STORED_MAX];
    sx_fragments fragments;
    const sx_device *device;
    uint32_t count;
    sx_ctx_init(&cx, (size_t)16 << 30);
    cx.fuel = UINT64_MAX;
    sx_code code = sx_device_find(&cx, SX_SPAN_LITERAL("x86-64-v4"), &device);
    code = code == SX_OK ? make_model_of(&cx, true, &asked) : code;
    code = code == SX_OK ? list_stored(&cx, stored, asked, list, &count) : code;
    double start = cpu_seconds();
    code = code == SX_OK ? sx_optimize(&cx, asked, device, &options, &better, &report) : code;
    out->alone[round] = cpu_seconds() - start;
    out->nodes_alone = report.nodes;
    start = cpu_seconds();
    code = code == SX_OK ? sx_fragments_find(&cx, asked, &options, list, count, &fragments) : code;
    options.fragments = &fragments;
    code = code == SX_OK ? sx_optimize(&cx, asked, device, &options, &better, &report) : code;
    out->met[round] = cpu_seconds() - start;
    out->share[round] = out->met[round] / out->alone[round];
    out->nodes_met = report.nodes - report.met_nodes;
    out->parts_met = report.met_count;
    out->parts = fragments.pieces.count - 1;
    if (code != SX_OK || report.met_count == 0) {
        (void)fprintf(stderr, "symplex-bench: snapshot-layers: %s\n",
                      code != SX_OK ? cx.error.text : "no layer was met");
        code = code == SX_OK ? SX_INTERNAL : code;
    }
    sx_ctx_fini(&cx);
    return code;
}

/* A model whose layers, but one, are those of a stored one: searched alone, and with what is stored. */
static sx_code run_layers(const sx_bench_options *options)
{
    static layers_sample out;
    static const char name[] = "snapshot-layers";
    sx_ctx cx;
    sx_buf bytes;
    sx_graph *canonical, *better;
    sx_optimize_options store = sx_optimize_defaults();
    sx_optimize_report report;
    const sx_device *device;
    sx_span stored = {0};
    uint32_t rounds = options->rounds < ROUNDS_MAX ? options->rounds : ROUNDS_MAX;
    rounds = rounds == 0 ? 1 : rounds;
    sx_buf_init(&bytes, SNAPSHOT_BYTES_MAX);
    sx_ctx_init(&cx, (size_t)16 << 30);
    cx.fuel = UINT64_MAX;
    sx_code code = sx_device_find(&cx, SX_SPAN_LITERAL("x86-64-v4"), &device);
    code = code == SX_OK ? make_model_of(&cx, false, &canonical) : code;
    code = code == SX_OK ? want_parts(&cx, canonical, &bytes, &store) : code;
    code = code == SX_OK ? sx_optimize(&cx, canonical, device, &store, &better, &report) : code;
    code = code == SX_OK ? page_aligned(&cx, &bytes, &stored) : code;
    for (uint32_t round = 0; round < rounds && code == SX_OK; round++) {
        code = measure_layers(stored, round, &out);
    }
    if (code == SX_OK) {
        put(options, name, "bytes", (double)stored.len, "B");
        put(options, name, "parts", out.parts, "count");
        put(options, name, "parts-met", out.parts_met, "count");
        put(options, name, "nodes-alone", out.nodes_alone, "count");
        put(options, name, "nodes-saturated", out.nodes_met, "count");
        put(options, name, "alone", sx_bench_median(out.alone, rounds), "s");
        put(options, name, "with-library", sx_bench_median(out.met, rounds), "s");
        put(options, name, "share", sx_bench_median(out.share, rounds), "ratio");
    }
    sx_buf_fini(&bytes);
    sx_ctx_fini(&cx);
    return code;
}

int sx_bench_meet(const sx_bench_options *options)
{
    static const uint32_t number[] = {1, 4, 24};
    char name[32];
    if (options->layers > 0) {
        (void)snprintf(name, sizeof(name), "transformer-%u", options->layers);
        program one = {name, make_transformer, &options->layers, true};
        return sx_code_exit(run_program(options, &one));
    }
    const program programs[] = {
        {"transformer-1", make_transformer, &number[0], true},
        {"transformer-4", make_transformer, &number[1], true},
        {"transformer-24", make_transformer, &number[2], true},
        {"transformer-24-rolled", make_transformer, &number[2], false},
        {"encoder", make_model, "encoder", true},
        {"cnn", make_model, "cnn", true},
        {"convnet-1", make_convnet, &number[0], true},
        {"convnet-4", make_convnet, &number[1], true},
    };
    sx_code code = SX_OK;
    for (uint32_t i = 0; i < SX_COUNT(programs) && code == SX_OK; i++) {
        code = run_program(options, &programs[i]);
    }
    code = code == SX_OK ? run_layers(options) : code;
    return sx_code_exit(code);
}
