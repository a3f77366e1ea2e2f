/* prove.c - what the parts of a kernel leave in its result, against the reference: a partition of the
 * elements, each with its term.
 *
 * Inside a part a store that a later one covers is hidden. What is live gets the grid variables as dimensions:
 * a variable that moves no address would let two grid points write one place. Each live record is decoded into
 * the dimensions of the result, which are the point of the space where the reference is taken; the terms must
 * be one. In bounds, different in each point, pairwise apart and as many as there are elements: then each is
 * written once. */
#include "core/judge/prove.h"

#include "core/kernel/online_blocks.h"

#include <stdio.h>
#include <string.h>

#include "core/tile/unfold.h"

sx_code sx_judge_make(sx_ctx *cx, sx_judge **judge)
{
    sx_judge *j = SX_NEW(cx, sx_judge);
    if (j == NULL) {
        return cx->error.code;
    }
    j->cx = cx;
    SX_TRY(sx_algebra_init(cx, &j->algebra));
    SX_TRY(sx_reference_make(cx, &j->reference));
    *judge = j;
    return SX_OK;
}

/* A store variable that runs over several dimensions becomes one for each. */
static bool split_dims(sx_algebra *g, sx_record *r, const sx_places *p)
{
    for (uint32_t v = 0; v < r->dims; v++) {
        sx_lin lin;
        sx_lin_get(g, r->address, &lin);
        int64_t c = lin.coef[SX_VAR_STORE + v];
        uint32_t k = p->count;
        while (k > 0 && p->stride[k - 1] > c) {
            k--;
        }
        if (k == 0 || c % p->stride[k - 1] != 0) {
            continue;
        }
        int64_t q = c / p->stride[k - 1];
        int64_t extent = p->extent[k - 1];
        if (q >= extent || r->count[v] <= (extent - 1) / q + 1 || extent % q != 0 ||
            r->count[v] % (extent / q) != 0) {
            continue;
        }
        if (r->dims >= SX_STORE_DIMS) {
            return false;
        }
        sx_lin sum;
        sx_lin_init(&sum, 0);
        sx_lin_add(g, &sum, SX_VAR_STORE + v, 1);
        sx_lin_add(g, &sum, SX_VAR_STORE + r->dims, extent / q);
        sx_subst s;
        sx_subst_begin(g, &s);
        sx_subst_var(&s, SX_VAR_STORE + v, sx_form_put(g, &sum));
        r->address = sx_form_subst(g, r->address, &s);
        r->value = r->value == 0 ? 0 : sx_term_subst(g, r->value, &s);
        r->count[r->dims++] = r->count[v] / (extent / q);
        r->count[v] = extent / q;
    }
    return !g->refused;
}

sx_judge_facts sx_judge_facts_of(const sx_schedule *schedule, sx_kernel_kind kind)
{
    sx_judge_facts facts = {0};
    sx_online_blocks blocks;
    if (kind == SX_KERNEL_DOT && schedule->stage_count > 0) {
        facts.panel = sx_schedule_step(schedule, SX_ROLE_COLUMN, SX_BIND_LOOP, 0);
        facts.argument = schedule->stage[0].argument;
    }
    if (kind == SX_KERNEL_ONLINE) {
        facts.keys = sx_schedule_step(schedule, SX_ROLE_SUM, SX_BIND_LOOP, 0);
        facts.rounds = sx_online_blocks_of(schedule, &blocks);
    }
    if (kind == SX_KERNEL_NESTED) {
        facts.rounds = sx_online_blocks_of(schedule, &blocks);
    }
    return facts;
}

/* ---- live records of a part ---- */
/* Does the later record cover the earlier one, or are they apart? */
static sx_read hides(sx_algebra *g, const sx_record *later, const sx_record *record)
{
    sx_subst s;
    uint32_t value;
    sx_lin lin;
    sx_places p = {.count = later->dims};
    sx_lin_get(g, later->address, &lin);
    for (uint32_t k = 0; k < later->dims; k++) {
        p.stride[k] = lin.coef[SX_VAR_STORE + k];
        p.extent[k] = later->count[k];
    }
    sx_record copy = *record;
    const sx_record *earlier = &copy;
    copy.value = 0;
    if (!split_dims(g, &copy, &p)) {
        return SX_READ_UNKNOWN;
    }
    sx_subst_begin(g, &s);
    for (uint32_t k = 0; k < earlier->dims; k++) { /* names of their own */
        uint32_t alias = SX_VAR_RUN + k;
        sx_subst_var(&s, SX_VAR_STORE + k, sx_form_var(g, alias, 1, 0));
        g->low[alias] = 0;
        g->high[alias] = earlier->count[k] - 1;
    }
    sx_record places_of = *later;
    places_of.value = 0;
    return sx_record_read(g, &places_of, sx_form_subst(g, earlier->address, &s), earlier->width,
                          &value);
}

static void keep_live(sx_judge *j, const sx_part *part, uint32_t result)
{
    sx_algebra *g = &j->algebra;
    const sx_records *stores = &j->walk.stores;
    for (uint32_t i = 0; i < stores->count && !g->refused; i++) {
        sx_record r = stores->record[i];
        bool hidden = r.buffer != result;
        for (uint32_t k = stores->count; !hidden && k-- > i + 1;) {
            if (stores->record[k].buffer != result) {
                continue;
            }
            sx_read seen = hides(g, &stores->record[k], &r);
            hidden = seen == SX_READ_COVERED;
            if (hidden) {
                sx_buffer_again(g, result);
            }
            if (seen == SX_READ_UNKNOWN) {
                (void)sx_refuse(g, "a store that a later one covers in part");
                return;
            }
        }
        for (uint32_t v = 0; !hidden && v < 3; v++) {
            if (part->grid[v] == 1) {
                continue;
            }
            if ((g->form[r.address].vars & SX_VAR_BIT(v)) == 0 ||
                !sx_record_close(g, &r, v, part->grid[v])) {
                (void)sx_refuse(g, "points of grid dimension %u store to the same place", v);
                return;
            }
        }
        if (!hidden) {
            sx_records_push(g, &j->live, &r);
        }
    }
}

/* ---- dimensions of the result ---- */
void sx_prove_ranges(sx_algebra *g, const sx_record *r, uint32_t first)
{
    for (uint32_t k = 0; k < r->dims; k++) {
        g->low[first + k] = 0;
        g->high[first + k] = r->count[k] - 1;
    }
}

static bool locate(sx_algebra *g, sx_final *f, const sx_places *p)
{
    sx_lin lin;
    if (!split_dims(g, &f->record, p)) {
        return false;
    }
    sx_lin_get(g, f->record.address, &lin);
    if ((lin.vars & (SX_VAR_BIT(SX_VAR_STORE) - 1)) != 0) {
        return false; /* nothing but store variables is left */
    }
    sx_prove_ranges(g, &f->record, SX_VAR_STORE);
    return sx_decode(g, &lin, p->stride, p->extent, p->count, f->digit);
}

/* In some dimension the two never have the same number. */
static bool are_apart(sx_algebra *g, const sx_final *a, const sx_final *b, const sx_places *p)
{
    sx_prove_ranges(g, &a->record, SX_VAR_STORE);
    sx_prove_ranges(g, &b->record, SX_VAR_RUN);
    for (uint32_t d = 0; d < p->count; d++) {
        sx_lin difference = a->digit[d];
        sx_lin renamed;
        sx_lin_init(&renamed, b->digit[d].constant);
        for (uint64_t left = b->digit[d].vars; left != 0; left &= left - 1) {
            uint32_t v = (uint32_t)__builtin_ctzll(left);
            sx_lin_add(g, &renamed, v - SX_VAR_STORE + SX_VAR_RUN, b->digit[d].coef[v]);
        }
        sx_lin_add_lin(g, &difference, &renamed, -1);
        if (sx_lin_avoids(g, &difference, -1, 1)) {
            return true;
        }
    }
    return false;
}

static bool is_partition(sx_judge *j, const sx_places *p, sx_mem mem)
{
    sx_algebra *g = &j->algebra;
    int64_t elements = 1;
    int64_t sum = 0;
    bool ok = true;
    for (uint32_t d = 0; d < p->count; d++) {
        ok = ok && sx_mul_i64(elements, p->extent[d], &elements);
    }
    for (uint32_t i = 0; i < j->live.count; i++) {
        int64_t size = 1;
        for (uint32_t k = 0; k < j->made[i].record.dims; k++) {
            ok = ok && sx_mul_i64(size, j->made[i].record.count[k], &size);
        }
        ok = ok && sx_add_i64(sum, size, &sum);
        if (j->made[i].record.mem != mem) {
            (void)sx_refuse(g, "a store of elements of another type");
            return false;
        }
        for (uint32_t k = 0; k < i; k++) {
            if (!are_apart(g, &j->made[k], &j->made[i], p)) {
                (void)sx_refuse(g, "two stores to the same elements are not known to be apart");
                return false;
            }
        }
    }
    if (!ok || sum != elements) {
        (void)sx_refuse(g, "%lld elements of %lld are stored", (long long)sum, (long long)elements);
        return false;
    }
    return true;
}

/* ---- the parts ---- */
static sx_code walk_parts(sx_judge *j, const sx_kernel *kernel, uint32_t result)
{
    sx_algebra *g = &j->algebra;
    if (g->refused) {
        return SX_OK;
    }
    for (uint32_t p = 0; p < kernel->part_count && !g->refused; p++) {
        const sx_part *part = &kernel->part[p];
        SX_TRY(sx_spend(j->cx, part->item_count));
        sx_walk_part(&j->walk, g, kernel, part);
        keep_live(j, part, result);
        if (g->refused) {
            char why[sizeof(g->why)];
            memcpy(why, g->why, sizeof(why));
            (void)snprintf(g->why, sizeof(g->why), "part %u: %.140s", p, why);
        }
    }
    return SX_OK;
}

static sx_code make_room(sx_judge *j)
{
    void *array = j->made;
    if (j->live.count > j->made_capacity) {
        SX_TRY(sx_grow(j->cx, &array, &j->made_capacity, j->live.count, sizeof(sx_final)));
        j->made = array;
    }
    return SX_OK;
}

/* Cuts a record where a store variable wraps in a dimension: `r` keeps the points before, `rest` has those behind. */
static bool cut(sx_algebra *g, sx_record *r, const sx_places *p, sx_record *rest)
{
    if (!split_dims(g, r, p)) {
        return false;
    }
    for (uint32_t v = 0; v < r->dims; v++) {
        sx_lin lin;
        sx_lin_get(g, r->address, &lin);
        int64_t c = lin.coef[SX_VAR_STORE + v];
        uint32_t k = p->count;
        while (k > 0 && p->stride[k - 1] > c) {
            k--;
        }
        if (k == 0 || c % p->stride[k - 1] != 0) {
            continue;
        }
        int64_t q = c / p->stride[k - 1];
        int64_t extent = p->extent[k - 1];
        int64_t whole = extent / q; /* steps of the variable through the dimension */
        int64_t walked = lin.constant / p->stride[k - 1] % extent / q;
        int64_t head = whole - walked;
        if (extent % q != 0 || lin.constant < 0 || head >= r->count[v]) {
            continue;
        }
        head = walked > 0 ? head : r->count[v] / whole * whole;
        if (head == r->count[v] || head == 0) {
            continue;
        }
        sx_subst s;
        sx_subst_begin(g, &s);
        sx_subst_var(&s, SX_VAR_STORE + v, sx_form_var(g, SX_VAR_STORE + v, 1, head));
        *rest = *r;
        rest->address = sx_form_subst(g, r->address, &s);
        rest->value = sx_term_subst(g, r->value, &s);
        rest->count[v] -= head;
        r->count[v] = head;
        return !g->refused && sx_record_normalise(g, r) && sx_record_normalise(g, rest);
    }
    return false;
}

#define CUTS_MAX 64
static sx_code locate_all(sx_judge *j, const sx_places *p)
{
    uint32_t cuts = 0;
    SX_TRY(make_room(j));
    for (uint32_t i = 0; i < j->live.count && !j->algebra.refused; i++) {
        j->made[i].record = j->live.record[i];
        sx_record rest;
        if (locate(&j->algebra, &j->made[i], p)) {
            continue;
        }
        if (cuts++ < CUTS_MAX && cut(&j->algebra, &j->live.record[i], p, &rest)) {
            sx_records_push(&j->algebra, &j->live, &rest);
            SX_TRY(make_room(j));
            i--;
        } else {
            (void)sx_refuse(&j->algebra, "store record %u does not lie along the dimensions", i);
        }
    }
    return SX_OK;
}

sx_code sx_prove_stores(sx_judge *j, const sx_kernel *kernel, uint32_t result, const sx_places *p)
{
    j->places = *p;
    j->result = result;
    SX_TRY(walk_parts(j, kernel, result));
    return locate_all(j, p);
}

void sx_prove_values(sx_judge *j, sx_prove_value expected, void *self)
{
    sx_algebra *g = &j->algebra;
    for (uint32_t i = 0; i < j->live.count && !g->refused; i++) {
        sx_prove_ranges(g, &j->made[i].record, SX_VAR_STORE);
        j->expected = expected(self, &j->made[i]);
        uint32_t wanted = j->expected, made = j->made[i].record.value;
        if (wanted != made) {
            wanted = sx_term_settle(g, wanted);
            made = sx_term_settle(g, made);
        }
        if (wanted != made) {
            (void)sx_refuse(g, "store record %u of %u holds another value than it must", i,
                            j->live.count);
        }
    }
}

sx_code sx_prove_begin(sx_judge *j, const sx_kernel *kernel, sx_verdict *verdict)
{
    *verdict = (sx_verdict){.proven = false};
    SX_TRY(sx_kernel_check(j->cx, kernel));
    sx_algebra_reset(&j->algebra);
    j->algebra.wide = kernel->lane_bytes == 8;
    j->algebra.again = 0;
    j->live.count = 0;
    j->expected = 0;
    return SX_OK;
}

sx_code sx_prove_finish(sx_judge *j, const sx_places *p, sx_mem mem, sx_verdict *verdict)
{
    sx_algebra *g = &j->algebra;
    if (!g->refused) {
        (void)is_partition(j, p, mem);
    }
    if (j->cx->error.code != SX_OK) {
        return j->cx->error.code;
    }
    verdict->proven = !g->refused;
    verdict->once = verdict->proven && j->result < 64 && (g->again >> j->result & 1) == 0;
    if (g->refused) {
        (void)snprintf(verdict->text, sizeof(verdict->text), "not proven: %s", g->why);
        return SX_OK;
    }
    (void)snprintf(verdict->text, sizeof(verdict->text),
                   "program proven: %u sets of stores, every element once and equal to the body "
                   "in the order of the numerics plan, grid points independent",
                   j->live.count);
    return SX_OK;
}

bool sx_prove_buffers(sx_algebra *g, const sx_kernel *kernel, uint32_t inputs, uint32_t results,
                      const int64_t *size)
{
    uint32_t given = inputs + results;
    bool ok = kernel->buffer_count >= given && kernel->buffer_count <= given + 1;
    for (uint32_t k = 0; ok && k < kernel->buffer_count; k++) {
        sx_buffer_role role = k < inputs  ? SX_BUFFER_IN
                              : k < given ? SX_BUFFER_OUT
                                          : SX_BUFFER_WORKSPACE;
        ok = kernel->buffer[k].role == role && (k >= given || kernel->buffer[k].size == size[k]);
    }
    if (!ok) {
        (void)sx_refuse(g, "buffers are not those of the node");
    }
    return ok;
}

static int64_t bytes_of(const sx_type *type)
{
    return sx_tensor_elements(type) * sx_dtype_bytes(type->dtype);
}

static void result_places(const sx_reference *r, sx_places *p)
{
    int64_t bytes = sx_dtype_bytes(r->result_dtype);
    p->count = 0;
    for (uint32_t d = r->space.rank; d-- > 0;) {
        if (r->space.out_stride[d] != 0) {
            p->stride[p->count] = bytes * r->space.out_stride[d];
            p->extent[p->count] = r->space.extent[d];
            p->dim[p->count++] = d;
        }
    }
}

typedef struct {
    sx_reference *r;
    const sx_places *p;
} asked;

static uint32_t body_value(void *self, const sx_final *f)
{
    const asked *a = self;
    sx_reference *r = a->r;
    memset(r->position, 0, sizeof(r->position));
    for (uint32_t k = 0; k < a->p->count; k++) {
        r->position[a->p->dim[k]] = sx_form_put(r->g, &f->digit[k]);
    }
    return sx_reference_result(r);
}

/* What of the kernel was proven of its blocks, behind what was proven of their elements. */
static void add_blocks(const sx_kernel *kernel, sx_verdict *verdict)
{
    const sx_tile *tile = NULL;
    for (uint32_t p = 0; p < kernel->part_count; p++) {
        tile = tile == NULL ? kernel->part[p].tile : tile;
    }
    size_t len = strlen(verdict->text);
    if (tile == NULL || !verdict->proven) {
        return;
    }
    (void)snprintf(verdict->text + len, sizeof(verdict->text) - len,
                   "; blocks hold each sum once and multiply each stage once, in order");
    len = strlen(verdict->text);
    if (tile->matrix != NULL) {
        (void)snprintf(verdict->text + len, sizeof(verdict->text) - len, ", %u steps by a %.32s",
                       tile->matrix->steps, tile->matrix->name);
    }
}

/* A kernel and the nodes that its results are: all over the same arguments. `facts` are of each result. */
typedef struct {
    const sx_attr *const *fused;
    uint32_t count;
    const sx_type *input;
    uint32_t input_count;
    const sx_judge_facts *facts;
} claim;

/* One of the results. */
static sx_code judge_elements(sx_judge *j, const claim *c, uint32_t result, const sx_kernel *kernel,
                              const sx_kernel *blocks, sx_verdict *verdict)
{
    sx_algebra *g = &j->algebra;
    sx_reference *r = &j->reference;
    sx_places p = {.count = 0};
    uint32_t inputs = c->input_count;
    SX_ASSERT(inputs <= SX_FUSED_ARGS_MAX && c->count <= SX_FUSED_RESULTS_MAX);
    SX_TRY(sx_prove_begin(j, kernel, verdict));
    SX_TRY(sx_prove_blocks(j, blocks));
    SX_TRY(sx_reference_begin(j->cx, r, g, c->fused[result], c->input, inputs, &c->facts[result]));
    int64_t size[SX_FUSED_ARGS_MAX + SX_FUSED_RESULTS_MAX];
    for (uint32_t a = 0; a < inputs; a++) {
        int64_t stride[SX_RANK_MAX];
        size[a] = bytes_of(&c->input[a]);
        if (a == r->packed && !sx_panel_strides(r, stride, &size[a])) {
            (void)sx_refuse(g, "the panels are too large");
        }
        size[a] *= a == r->packed ? kernel->lane_bytes : 1;
    }
    for (uint32_t k = 0; k < c->count; k++) {
        sx_type type;
        SX_TRY(sx_fused_infer(j->cx, c->fused[k], c->input, inputs, &type));
        size[inputs + k] = k == result ? r->result_bytes : bytes_of(&type);
    }
    if (sx_prove_buffers(g, kernel, inputs, c->count, size)) {
        result_places(r, &p);
        SX_TRY(sx_prove_stores(j, kernel, inputs + result, &p));
    }
    sx_prove_values(j, body_value, &(asked){r, &p});
    return sx_prove_finish(j, &p, sx_loop_mem(r->result_dtype, kernel->lane_bytes), verdict);
}

static sx_code judge_claim(sx_judge *j, const claim *c, const sx_kernel *kernel,
                           sx_verdict *verdict)
{
    const sx_kernel *elements = kernel;
    bool blocks = false, once = true;
    *verdict = (sx_verdict){.proven = false};
    for (uint32_t p = 0; p < kernel->part_count; p++) {
        blocks = blocks || kernel->part[p].tile != NULL;
    }
    if (blocks) {
        sx_kernel *unfolded;
        SX_TRY(sx_tile_unfold(j->cx, kernel, &unfolded));
        elements = unfolded;
    }
    for (uint32_t r = 0; r < c->count; r++) {
        SX_TRY(judge_elements(j, c, r, elements, kernel, verdict));
        once = once && verdict->once;
        if (c->count > 1) {
            sx_verdict one = *verdict;
            (void)snprintf(verdict->text, sizeof(verdict->text), "result %u of %u: %.200s", r,
                           c->count, one.text);
        }
        if (!verdict->proven) {
            return SX_OK;
        }
    }
    verdict->once = once;
    add_blocks(kernel, verdict);
    return SX_OK;
}

sx_code sx_judge_kernel(sx_judge *j, const sx_attr *fused, const sx_type *input,
                        uint32_t input_count, const sx_judge_facts *facts, const sx_kernel *kernel,
                        sx_verdict *verdict)
{
    const claim c = {&fused, 1, input, input_count, facts};
    return judge_claim(j, &c, kernel, verdict);
}

sx_code sx_judge_results(sx_judge *j, const sx_attr *const *fused, uint32_t count,
                         const sx_type *input, uint32_t input_count, const sx_kernel *kernel,
                         sx_verdict *verdict)
{
    const sx_judge_facts nothing[SX_FUSED_RESULTS_MAX] = {{0}};
    const claim c = {fused, count, input, input_count, nothing};
    SX_ASSERT(count > 0 && count <= SX_FUSED_RESULTS_MAX);
    SX_TRY(judge_claim(j, &c, kernel, verdict));
    if (verdict->proven && count > 1) {
        sx_verdict last = *verdict;
        (void)snprintf(verdict->text, sizeof(verdict->text), "each of %u results, the last: %.200s",
                       count, strchr(last.text, ':') + 2);
    }
    return SX_OK;
}

sx_code sx_judge_pieces(sx_judge *j, const sx_attr *fused, const sx_attr *statistic,
                        const sx_type *input, uint32_t input_count, const sx_judge_facts *facts,
                        const sx_kernel *kernel, sx_verdict *verdict)
{
    const sx_attr *const node[] = {fused, statistic};
    sx_judge_facts of[] = {*facts, *facts};
    of[1].statistic = true;
    const claim c = {node, SX_COUNT(node), input, input_count, of};
    SX_TRY(judge_claim(j, &c, kernel, verdict));
    if (verdict->proven) {
        sx_verdict last = *verdict;
        (void)snprintf(verdict->text, sizeof(verdict->text), "sums, and statistics: %.200s",
                       strchr(last.text, ':') + 2);
    }
    return SX_OK;
}

/* ---- panels ---- */
static bool panel_places(sx_reference *r, sx_places *p)
{
    int64_t stride[SX_RANK_MAX], size;
    int64_t panel = r->facts.panel;
    if (r->packed == UINT32_MAX || !sx_panel_strides(r, stride, &size)) {
        (void)sx_refuse(r->g, "no argument is packed");
        return false;
    }
    p->count = 1;
    int64_t lane = r->g->wide ? 8 : 4; /* panels hold lanes */
    p->stride[0] = lane;
    p->extent[0] = panel;
    p->dim[0] = SX_RANK_MAX;
    for (uint32_t group = 0; group < 3; group++) { /* reduced dimensions, panels, the others */
        for (uint32_t d = r->space.rank; d-- > 0;) {
            bool columns = d == r->columns;
            uint32_t of = r->space.reduced[d] ? 0 : columns ? 1 : 2;
            int64_t extent = r->space.extent[d];
            extent = columns ? sx_ceil_div_i64(extent, panel) : extent;
            if (of == group && stride[d] != 0 && extent > 1) {
                p->stride[p->count] = lane * stride[d];
                p->extent[p->count] = extent;
                p->dim[p->count++] = d;
            }
        }
    }
    return true;
}

/* The element of the argument that belongs in the panels at this place, or zero behind the last column. */
static uint32_t packed_element(void *self, const sx_final *f)
{
    const asked *a = self;
    sx_reference *r = a->r;
    const sx_places *p = a->p;
    sx_algebra *g = r->g;
    sx_lin column;
    sx_lin_init(&column, 0);
    memset(r->position, 0, sizeof(r->position));
    for (uint32_t k = 0; k < p->count; k++) {
        uint32_t d = p->dim[k];
        if (d == SX_RANK_MAX || d == r->columns) {
            sx_lin_add_lin(g, &column, &f->digit[k], d == r->columns ? r->facts.panel : 1);
        } else {
            r->position[d] = sx_form_put(g, &f->digit[k]);
        }
    }
    int64_t low, high;
    int64_t columns = r->columns == SX_RANK_MAX ? 1 : r->space.extent[r->columns];
    if (!sx_lin_range(g, &column, &low, &high)) {
        return 0;
    }
    if (low >= columns) {
        return sx_term_constant(g, 0);
    }
    /* what stands behind the last column is never asked for: a set that begins inside has the element's term */
    if (r->columns != SX_RANK_MAX) {
        r->position[r->columns] = sx_form_put(g, &column);
    }
    uint32_t argument = r->packed;
    r->packed = UINT32_MAX; /* where it comes from it is not packed */
    sx_dtype dtype = r->input[argument].dtype;
    sx_mem mem = sx_loop_mem(dtype, g->wide ? 8 : 4);
    uint32_t address = sx_reference_address(r, argument);
    r->packed = argument;
    return sx_reference_decode(r, dtype, sx_term_element(g, 0, (uint8_t)mem, address, 0));
}

sx_code sx_judge_pack(sx_judge *j, const sx_attr *fused, const sx_type *input, uint32_t input_count,
                      const sx_judge_facts *facts, const sx_kernel *kernel, sx_verdict *verdict)
{
    sx_algebra *g = &j->algebra;
    sx_reference *r = &j->reference;
    sx_places p = {.count = 0};
    SX_TRY(sx_prove_begin(j, kernel, verdict));
    SX_TRY(sx_reference_begin(j->cx, r, g, fused, input, input_count, facts));
    if (panel_places(r, &p)) {
        int64_t stride[SX_RANK_MAX];
        int64_t size[2] = {bytes_of(&input[r->packed]), 0};
        (void)sx_panel_strides(r, stride, &size[1]);
        size[1] *= kernel->lane_bytes;
        (void)sx_prove_buffers(g, kernel, 1, 1, size);
        SX_TRY(sx_prove_stores(j, kernel, 1, &p));
    }
    sx_prove_values(j, packed_element, &(asked){r, &p});
    return sx_prove_finish(j, &p, SX_MEM_LANE, verdict);
}

void sx_judge_print(const sx_judge *j, sx_buf *text)
{
    sx_buf_put_text(text, "live\n");
    for (uint32_t i = 0; i < j->live.count; i++) {
        sx_record_print(&j->algebra, &j->live.record[i], text);
    }
    for (uint32_t k = 0; k < j->places.count; k++) {
        sx_buf_print(text, "place %u: stride %lld, extent %lld\n", j->places.dim[k],
                     (long long)j->places.stride[k], (long long)j->places.extent[k]);
    }
    sx_buf_put_text(text, "last part\n");
    for (uint32_t i = 0; i < j->walk.stores.count; i++) {
        sx_record_print(&j->algebra, &j->walk.stores.record[i], text);
    }
    if (j->expected != 0) {
        sx_buf_put_text(text, "expected\n");
        sx_term_print(&j->algebra, j->expected, 7, text);
    }
}
