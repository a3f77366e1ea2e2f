/* cmd_explain_screen.c - explain on one screen: what was made of the model, in its own names; where the time
 * goes; how it was checked. */
#include <stdio.h>
#include <string.h>

#include "client/cli/cmd_module.h"
#include "client/cli/cubins.h"
#include "client/cli/differences.h"
#include "client/cli/estimate.h"
#include "client/cli/layers.h"
#include "client/cli/machine.h"
#include "client/cli/table.h"
#include "core/cost/cost.h"

#define GROUPS_SHOWN 8u
#define KERNELS_SHOWN 10u
#define RULES_SHOWN 6u
#define NAMES_SHOWN 2u
#define NAME_BYTES 56u
#define OPERATOR_BYTES 44u
#define SCHEDULE_BYTES 60u

typedef struct {
    sx_ctx *cx;
    const sx_module *module;
    const sxc_record *record;
    sxc_layers layers;
    sxc_estimate estimate;
    sx_buf *out;
} screen;

static sx_span text_of(const screen *s, sx_module_text text)
{
    return sx_module_string(s->module, text);
}

/* Of a module with several variants the first is shown; module show has all. */
static uint64_t launches_of(const screen *s)
{
    return s->module->variant_count > 0 ? s->module->variant[0].launch_count : 0;
}

/* Estimates of all variants, where there are several. */
static void put_variants(screen *s)
{
    for (uint64_t v = 0; v < s->module->variant_count && s->module->variant_count > 1; v++) {
        const sx_module_variant *variant = &s->module->variant[v];
        char cost[32], floor[32];
        sxc_human_ns(variant->cost_ns, cost);
        sxc_human_ns(variant->floor_ns, floor);
        sx_buf_put_text(s->out, v == 0 ? "variants   " : "           ");
        sxc_put_plain(s->out, text_of(s, variant->name));
        sx_buf_print(s->out, ": %s a run, floor %s%s\n", cost, floor,
                     v == 0 ? "; what follows is of this one" : "");
        size_t begin = s->out->len;
        if (v > 0) {
            sx_buf_put_text(s->out, "             ");
            size_t indented = s->out->len;
            sxc_put_difference(s->module, v - 1, v, s->out);
            sx_buf_put_text(s->out, "\n");
            s->out->len = s->out->len == indented + 1 ? begin : s->out->len; /* nothing differs */
        }
    }
}

static double cost_of(const screen *s, uint64_t launch)
{
    const sx_module_kernel *kernel = sx_module_kernel_of(s->module, launch);
    return kernel != NULL ? s->estimate.cost_ns[s->module->launch[launch].kernel] : 0;
}

/* At most `most` bytes of a text, with "..." where some are left out. */
static void put_cut(sx_buf *out, sx_span text, size_t most)
{
    bool cut = text.len > most;
    sxc_put_plain(out, (sx_span){text.ptr, cut ? most - 3 : text.len});
    sx_buf_put_text(out, cut ? "..." : "");
}

/* ---- head ---- */

const sx_device *sxc_device_of(sx_span target)
{
    size_t begin =
        target.len; /* of several machines the last is the best, for which the estimates are */
    while (begin > 0 && target.ptr[begin - 1] != ',') {
        begin--;
    }
    target = (sx_span){target.ptr + begin, target.len - begin};
    return sx_device_row(target);
}

void sxc_put_machine(const sx_module *module, bool with_here, sx_buf *out)
{
    sx_span target = sx_module_string(module, module->info->target);
    const sx_device *device = sxc_device_of(target);
    if (device == NULL) {
        return;
    }
    uint32_t here = sxc_cores();
    sx_buf_print(out, "%u cores of %s at %.1f GHz with %.0f GB/s", device->cores, device->name,
                 device->ghz, device->memory_bytes_per_ns);
    if (with_here && device->block_threads == 0 && here != device->cores) {
        sx_buf_print(out, "; this machine has %u", here);
    }
}

static void put_extents(screen *s)
{
    for (uint64_t i = 0; i < s->module->symbol_count; i++) {
        sx_buf_put_text(s->out, i == 0 ? " (" : ", ");
        sxc_put_plain(s->out, text_of(s, s->module->symbol[i].name));
        sx_buf_put_u8(s->out, '=');
        sx_module_symbol_print(s->module, (uint32_t)i, s->out);
    }
    sx_buf_put_text(s->out, s->module->symbol_count > 0 ? ")" : "");
}

static void put_head(screen *s)
{
    const sx_module_info *info = s->module->info;
    char before[32], key[SX_KEY_TEXT_SIZE];
    sxc_human_ns(info->input_cost_ns, before);
    sxc_module_key(s->module, key);
    sx_buf_put_text(s->out, "program    ");
    sxc_put_plain(s->out, text_of(s, info->name));
    put_extents(s);
    sx_buf_put_u8(s->out, '\n');
    sxc_put_line(s->out, "target", text_of(s, info->target));
    sxc_put_line(s->out, "key", sx_span_of(key));
    sxc_put_assembled(s->module, s->out);
    sxc_estimate_print(s->module, &s->estimate, s->out);
    sx_buf_print(s->out, ", %.4g MFLOP", info->flops / 1e6);
    if (info->input_cost_ns > 0) {
        sxc_estimate_print_before(&s->estimate, before, s->out);
    }
    sx_buf_put_u8(s->out, '\n');
}

/* ---- what was made of the model ---- */

typedef struct {
    sx_span operators;
    const char *kind; /* of the work; static storage */
    bool prologue;
    uint32_t launches;
    double cost_ns;
    uint64_t first[NAMES_SHOWN]; /* launches of different layers */
    uint32_t layers;             /* how many, */
    const sx_origin *last;       /* and the last of them */
} group;

static bool same_layer(const sx_origin *a, const sx_origin *b)
{
    return a == b || (a != NULL && b != NULL && sx_span_equal(a->name, b->name));
}

static sx_code find_groups(screen *s, group **groups, uint32_t *count)
{
    *count = 0;
    *groups = SX_NEW_ARRAY(s->cx, group, (size_t)launches_of(s) + 1);
    if (*groups == NULL) {
        return s->cx->error.code;
    }
    for (uint64_t i = 0; i < launches_of(s); i++) {
        sx_buf text;
        sx_buf_init(&text, 4096);
        sx_code code = sxc_layers_operators(s->cx, &s->layers, i, OPERATOR_BYTES, &text);
        char *copy = sx_alloc_text(s->cx, sx_buf_span(&text));
        sx_buf_fini(&text);
        SX_TRY(copy == NULL ? SX_NOMEM : code);
        group this = {.operators = sx_span_of(copy),
                      .kind = sx_module_work_name(s->module, i),
                      .prologue = s->module->launch[i].prologue != 0};
        uint32_t at = 0;
        while (at < *count &&
               !((*groups)[at].kind == this.kind && (*groups)[at].prologue == this.prologue &&
                 sx_span_equal((*groups)[at].operators, this.operators))) {
            at++;
        }
        if (at == *count) {
            (*groups)[(*count)++] = this;
        }
        group *found = &(*groups)[at];
        const sx_origin *layer = sxc_layers_main(&s->layers, i);
        if (found->layers == 0 || !same_layer(layer, found->last)) {
            if (found->layers < NAMES_SHOWN) {
                found->first[found->layers] = i;
            }
            found->layers++;
            found->last = layer;
        }
        found->launches++;
        found->cost_ns += cost_of(s, i);
    }
    return SX_OK;
}

/* Dearest first, what runs once at load last; equal ones stay in their order. */
static void sort_groups(group *groups, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        group moved = groups[i];
        uint32_t at = i;
        for (; at > 0; at--) {
            const group *before = &groups[at - 1];
            bool later = before->prologue != moved.prologue ? before->prologue
                                                            : before->cost_ns < moved.cost_ns;
            if (!later) {
                break;
            }
            groups[at] = groups[at - 1];
        }
        groups[at] = moved;
    }
}

static void put_name(screen *s, uint64_t launch, sx_buf *out)
{
    const sx_origin *origin = sxc_layers_main(&s->layers, launch);
    if (origin != NULL) {
        put_cut(out, origin->name, NAME_BYTES);
    } else {
        const sx_module_kernel *kernel = sx_module_kernel_of(s->module, launch);
        put_cut(out, kernel != NULL ? text_of(s, kernel->name) : SX_SPAN_LITERAL("-"), NAME_BYTES);
    }
}

static void put_names(screen *s, const group *g, sx_buf *out)
{
    for (uint32_t k = 0; k < g->layers && k < NAMES_SHOWN; k++) {
        sx_buf_put_text(out, k > 0 ? ", " : "");
        put_name(s, g->first[k], out);
    }
    if (g->layers > NAMES_SHOWN) {
        sx_buf_print(out, " and %u more", g->layers - NAMES_SHOWN);
    }
}

static void put_cell(sxc_table *table, sx_buf *cell)
{
    sxc_table_put_span(table, sx_buf_span(cell));
    sx_buf_fini(cell);
}

static sx_code put_groups(screen *s)
{
    group *groups;
    uint32_t count = 0;
    SX_TRY(find_groups(s, &groups, &count));
    sort_groups(groups, count);
    sxc_table table;
    sxc_table_init(&table, s->cx, ">TIMES|KERNEL|WHEN|FOR|IN");
    for (uint32_t i = 0; i < count && i < GROUPS_SHOWN; i++) {
        const group *g = &groups[i];
        sx_buf names;
        sx_buf_init(&names, 4096);
        put_names(s, g, &names);
        sxc_table_put(&table, "%u", g->launches);
        sxc_table_put(&table, "%s", g->kind);
        sxc_table_put(&table, "%s", g->prologue ? "load" : "run");
        sxc_table_put_span(&table, g->operators.len > 0 ? g->operators : SX_SPAN_LITERAL("-"));
        put_cell(&table, &names);
    }
    sx_buf_put_u8(s->out, '\n');
    SX_TRY(sxc_table_print(&table, s->out));
    if (count > GROUPS_SHOWN) {
        uint32_t launches = 0;
        for (uint32_t i = GROUPS_SHOWN; i < count; i++) {
            launches += groups[i].launches;
        }
        sx_buf_print(s->out, "and %u launches of %u other forms\n", launches, count - GROUPS_SHOWN);
    }
    return SX_OK;
}

/* Nodes of the model that no launch does the work of, by operator. */
static sx_code put_gone(screen *s)
{
    const sx_origins *origins = s->layers.program->origins;
    if (origins == NULL || launches_of(s) == 0) {
        return SX_OK;
    }
    bool *there = SX_NEW_ARRAY(s->cx, bool, origins->count + 1);
    if (there == NULL) {
        return s->cx->error.code;
    }
    for (uint64_t i = 0; i < launches_of(s); i++) {
        const sx_origin **origin;
        uint32_t count;
        SX_TRY(sxc_layers_of_launch(s->cx, &s->layers, i, &origin, &count));
        for (uint32_t k = 0; k < count; k++) {
            there[origin[k] - origins->origin] = true;
        }
    }
    uint32_t gone = 0;
    sx_span first = {NULL, 0};
    for (uint32_t i = 0; i < origins->count; i++) {
        bool again = false; /* a node of the model has several rows if its nodes lie apart */
        for (uint32_t j = 0; j < origins->count && !again; j++) {
            again = (there[j] || j < i) &&
                    sx_span_equal(origins->origin[j].name, origins->origin[i].name);
        }
        if (!there[i] && !again) {
            first = gone++ == 0 ? origins->origin[i].name : first;
        }
    }
    if (gone > 0) {
        sx_buf_print(s->out, "%u node%s of the model %s no kernel of their own left: ", gone,
                     gone == 1 ? "" : "s", gone == 1 ? "has" : "have");
        put_cut(s->out, first, NAME_BYTES);
        sx_buf_put_text(s->out, gone > 1 ? ", ...\n" : "\n");
    }
    return SX_OK;
}

static uint64_t count_prologue(const screen *s)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < launches_of(s); i++) {
        count += s->module->launch[i].prologue != 0 ? 1 : 0;
    }
    return count;
}

/* Marks the kernels that launches of variant `index` run. */
static void mark_kernels(const sx_module *module, uint64_t index, bool *marked)
{
    SX_ASSERT(index < module->variant_count);
    const sx_module_variant *variant = &module->variant[index];
    for (uint64_t i = 0; i < variant->launch_count; i++) {
        uint64_t launch = variant->launch_first + i;
        if (sx_module_kernel_of(module, launch) != NULL) {
            marked[module->launch[launch].kernel] = true;
        }
    }
}

/* "9 kernels", those of the variant that is shown; where there are others, how many of the nine they use too, and
 * how many the module has. */
static sx_code put_kernel_count(screen *s)
{
    const sx_module *module = s->module;
    bool *here = SX_NEW_ARRAY(s->cx, bool, (size_t)module->kernel_count + 1);
    bool *elsewhere = SX_NEW_ARRAY(s->cx, bool, (size_t)module->kernel_count + 1);
    if (here == NULL || elsewhere == NULL) {
        return s->cx->error.code;
    }
    for (uint64_t v = 0; v < module->variant_count; v++) {
        mark_kernels(module, v, v == 0 ? here : elsewhere);
    }
    uint64_t count = 0, shared = 0;
    for (uint64_t k = 0; k < module->kernel_count; k++) {
        count += here[k] ? 1 : 0;
        shared += here[k] && elsewhere[k] ? 1 : 0;
    }
    sx_buf_print(s->out, "\n%llu kernel%s", (unsigned long long)count, count == 1 ? "" : "s");
    if (module->variant_count > 1) {
        sx_buf_print(s->out, " in this variant (%llu of them in others too; %llu in the module)",
                     (unsigned long long)shared, (unsigned long long)module->kernel_count);
    }
    return SX_OK;
}

static sx_code put_made(screen *s)
{
    uint64_t load = count_prologue(s);
    SX_TRY(put_kernel_count(s));
    sx_buf_print(s->out, ", launched %llu times a run",
                 (unsigned long long)(launches_of(s) - load));
    if (load > 0) {
        sx_buf_print(s->out, " and %llu times at load", (unsigned long long)load);
    }
    SX_TRY(put_groups(s));
    return put_gone(s);
}

/* ---- rules ---- */

typedef struct {
    sx_span name;
    uint32_t steps;
} rule;

static void count_rule(rule *rules, uint32_t *count, sx_span name)
{
    uint32_t at = 0;
    while (at < *count && !sx_span_equal(rules[at].name, name)) {
        at++;
    }
    if (at == *count) {
        rules[(*count)++] = (rule){name, 0};
    }
    rules[at].steps++;
    for (; at > 0 && rules[at].steps > rules[at - 1].steps; at--) {
        rule swap = rules[at];
        rules[at] = rules[at - 1];
        rules[at - 1] = swap;
    }
}

/* "a, b, c" */
static void count_rules(rule *rules, uint32_t *count, sx_span names)
{
    while (names.len > 0) {
        const uint8_t *comma = memchr(names.ptr, ',', names.len);
        size_t len = comma != NULL ? (size_t)(comma - names.ptr) : names.len;
        count_rule(rules, count, (sx_span){names.ptr, len});
        size_t step = len;
        while (step < names.len && (names.ptr[step] == ',' || names.ptr[step] == ' ')) {
            step++;
        }
        names = (sx_span){names.ptr + step, names.len - step};
    }
}

/* A stored program that this one equals; its key under the options of this request is that of the module where it is
 * the same program, stored for other options or extents. */
static void put_meeting(screen *s, const sx_module_rewrite *rewrite)
{
    sx_key key;
    char own[SX_KEY_TEXT_SIZE];
    sx_span stored = text_of(s, rewrite->after);
    size_t head = strlen("stored program ");
    memcpy(key.byte, s->module->info->key, sizeof(key.byte));
    sx_key_print(&key, own);
    if (stored.len >= head + strlen(own) && memcmp(stored.ptr + head, own, strlen(own)) == 0) {
        sx_buf_put_text(s->out,
                        "known      the search was stored already, for other options or extents\n");
        return;
    }
    sx_buf_put_text(s->out, "equal to   ");
    sxc_put_plain(s->out, stored);
    sx_buf_put_text(s->out, " by ");
    put_cut(s->out, text_of(s, rewrite->rule), 80);
    sx_buf_put_u8(s->out, '\n');
}

static sx_code put_rules(screen *s)
{
    const sx_module *module = s->module;
    size_t most = 0;
    for (uint64_t i = 0; i < module->rewrite_count; i++) {
        most += module->rewrite[i].rule.size + 1;
    }
    rule *rules = SX_NEW_ARRAY(s->cx, rule, most + 1);
    uint32_t count = 0, steps = 0;
    if (rules == NULL) {
        return s->cx->error.code;
    }
    for (uint64_t i = 0; i < module->rewrite_count; i++) {
        const sx_module_rewrite *rewrite = &module->rewrite[i];
        if (sx_span_is(text_of(s, rewrite->before), "this program")) {
            put_meeting(s, rewrite);
        } else if (!sx_span_is(text_of(s, rewrite->rule), "part")) {
            count_rules(rules, &count, text_of(s, rewrite->rule));
            steps++;
        }
    }
    if (steps == 0) {
        return SX_OK;
    }
    sx_buf_print(s->out, "rewrites   %u, by ", steps);
    for (uint32_t i = 0; i < count && i < RULES_SHOWN; i++) {
        sx_buf_put_text(s->out, i > 0 ? ", " : "");
        sxc_put_plain(s->out, rules[i].name);
        sx_buf_print(s->out, " %u", rules[i].steps);
    }
    if (count > RULES_SHOWN) {
        sx_buf_print(s->out, " and %u other rules", count - RULES_SHOWN);
    }
    sx_buf_put_u8(s->out, '\n');
    return SX_OK;
}

static void put_search(screen *s)
{
    for (uint64_t i = 0; i < s->module->search_count; i++) {
        const sx_module_search *search = &s->module->search[i];
        sx_buf_print(s->out, "search     %llu nodes in %llu classes; stopped: ",
                     (unsigned long long)search->nodes, (unsigned long long)search->classes);
        sxc_put_plain(s->out, text_of(s, search->stop));
        if (search->uses > search->parts) {
            sx_buf_print(s->out, "; %llu parts distinct, used %llu times",
                         (unsigned long long)search->parts, (unsigned long long)search->uses);
        }
        sx_buf_put_text(s->out, search->proven != 0 ? "; proven least\n" : "\n");
    }
}

/* ---- where the time goes ---- */

typedef struct {
    uint32_t kernel;
    uint32_t launches; /* at each run */
    uint64_t first;    /* of them */
    double cost_ns;    /* all of them */
} share;

static sx_code find_shares(screen *s, share **shares, uint32_t *count)
{
    uint32_t kernels = (uint32_t)s->module->kernel_count;
    *shares = SX_NEW_ARRAY(s->cx, share, kernels + 1);
    if (*shares == NULL) {
        return s->cx->error.code;
    }
    for (uint64_t i = launches_of(s); i-- > 0;) {
        if (sx_module_kernel_of(s->module, i) == NULL) {
            continue;
        }
        share *at = &(*shares)[s->module->launch[i].kernel];
        if (!s->module->launch[i].prologue) {
            at->first = i;
            at->launches++;
            at->cost_ns += cost_of(s, i);
        }
    }
    *count = 0;
    for (uint32_t k = 0; k < kernels; k++) { /* dearest first */
        share moved = (*shares)[k];
        moved.kernel = k;
        if (moved.launches == 0) {
            continue;
        }
        uint32_t at = (*count)++;
        for (; at > 0 && (*shares)[at - 1].cost_ns < moved.cost_ns; at--) {
            (*shares)[at] = (*shares)[at - 1];
        }
        (*shares)[at] = moved;
    }
    return SX_OK;
}

static void put_share(screen *s, sxc_table *table, const share *row)
{
    const sx_module_kernel *kernel = &s->module->kernel[row->kernel];
    sx_buf layer, schedule;
    sx_buf_init(&layer, 4096);
    sx_buf_init(&schedule, 4096);
    put_name(s, row->first, &layer);
    if (row->launches > 1) {
        sx_buf_print(&layer, " and %u more", row->launches - 1);
    }
    put_cut(&schedule, kernel->plan.size > 0 ? text_of(s, kernel->plan) : text_of(s, kernel->what),
            SCHEDULE_BYTES);
    double total = s->estimate.run_cost_ns;
    sxc_table_put(table, "%.1f", row->cost_ns / 1e3);
    sxc_table_put(table, "%.0f", total > 0 ? 100 * row->cost_ns / total : 0.0);
    sxc_table_put(table, "%.1f", s->estimate.floor_ns[row->kernel] * row->launches / 1e3);
    sxc_table_put(table, "%u", row->kernel);
    sxc_table_put(table, "%s", sx_module_kernel_kind_name(kernel->kind));
    put_cell(table, &schedule);
    put_cell(table, &layer);
}

static sx_code put_shares(screen *s)
{
    share *shares;
    uint32_t count = 0;
    SX_TRY(find_shares(s, &shares, &count));
    if (count == 0) {
        return SX_OK;
    }
    sxc_table table;
    sxc_table_init(&table, s->cx, ">ESTIMATE US|>%|>FLOOR US|>KERNEL|KIND|SCHEDULE|LAYER");
    for (uint32_t i = 0; i < count && i < KERNELS_SHOWN; i++) {
        put_share(s, &table, &shares[i]);
    }
    sx_buf_put_u8(s->out, '\n');
    SX_TRY(sxc_table_print(&table, s->out));
    double rest = 0;
    for (uint32_t i = KERNELS_SHOWN; i < count; i++) {
        rest += shares[i].cost_ns;
    }
    if (count > KERNELS_SHOWN) {
        sx_buf_print(s->out, "and %u kernels with %.1f us together\n", count - KERNELS_SHOWN,
                     rest / 1e3);
    }
    return SX_OK;
}

/* ---- checks ---- */

/* Checks of single kernels as one line; every other one by itself. */
static void put_checks(screen *s)
{
    uint64_t kernels = 0, points = 0, emulated = 0;
    double error = 0, tolerance = 0;
    const char *word = s->record->state == SXC_RECORD_VERIFIED ? "verified" : "claimed";
    sx_buf_put_text(s->out, "\nrecord     ");
    sxc_record_print(s->record, s->out);
    sx_buf_put_u8(s->out, '\n');
    for (uint64_t i = 0; i < s->module->check_count; i++) {
        const sx_module_check *check = &s->module->check[i];
        sx_span name = text_of(s, check->name);
        if (name.len > 7 && memcmp(name.ptr, "kernel ", 7) == 0 && check->passed) {
            kernels++;
            emulated += check->emulated;
            points += check->points;
            error = check->error > error ? check->error : error;
            tolerance = check->tolerance;
            continue;
        }
        sxc_put_line(s->out,
                     check->passed == SX_CHECK_ABSENT      ? "NOT RUN"
                     : check->passed == SX_CHECK_IMPRECISE ? "IMPRECISE"
                                                           : word,
                     name);
        if (check->passed) {
            sx_buf_print(s->out, "           %llu elements, largest error %.1e (allowed %.0e)\n",
                         (unsigned long long)check->points, check->error, check->tolerance);
        }
    }
    if (kernels > 0) {
        sx_buf_print(s->out,
                     "%-10s %llu kernels at %llu elements against the interpreter, largest "
                     "error %.1e (allowed %.0e)",
                     word, (unsigned long long)kernels, (unsigned long long)points, error,
                     tolerance);
        sx_buf_put_text(s->out, emulated == 0         ? ", executed\n"
                                : emulated == kernels ? ", emulated\n"
                                                      : ", partly emulated\n");
    }
    if (s->module->check_count == 0 && s->module->kernel_count > 0) {
        sx_buf_put_text(s->out, "NOT RUN    anything: the record is empty\n");
    }
}

sx_code sxc_explain_screen(sx_ctx *cx, const sx_module *module, const sxc_record *record,
                           sx_buf *out)
{
    screen s = {.cx = cx, .module = module, .record = record, .out = out};
    SX_TRY(sxc_layers_find(cx, module, &s.layers));
    SX_TRY(sxc_estimate_make(cx, module, record, 0, &s.estimate));
    put_head(&s);
    put_variants(&s);
    SX_TRY(sxc_sharding_text(cx, module, out));
    put_search(&s);
    SX_TRY(put_rules(&s));
    sxc_put_range(module, "", out);
    if (module->kernel_count > 0) {
        SX_TRY(put_made(&s));
        SX_TRY(put_shares(&s));
        put_checks(&s);
    }
    sx_buf_put_text(out,
                    "\nexplain --all has every stage, rewrite and kernel; --json everything\n");
    return sx_buf_check(cx, out, "explanation");
}
