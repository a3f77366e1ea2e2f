/* module_launch.c - launches: what each kind must say, and which tensors it may write. */
#include "protocol/module_check.h"

#include <string.h>

#define U(value) ((unsigned long long)(value))

/* A launch that is checked, with what it is part of. */
typedef struct {
    sx_ctx *cx;
    const sx_module *module;
    const sx_module_variant *variant;
    uint32_t variant_index, index;
    const sx_module_launch *launch;
    const uint32_t *arg;
    /* What a machine that all guards of the variant hold on has at least. */
    sx_arch_set machine;
} place;

#define BAD(p, format, ...)                                                    \
    SX_FAIL((p)->cx, SX_CORRUPT, "module launch %u (%s): " format, (p)->index, \
            sx_module_launch_name((p)->launch->kind), __VA_ARGS__)

static const sx_module_tensor *tensor_of(const place *p, uint32_t arg)
{
    SX_ASSERT(arg < p->launch->arg_count);
    return &p->module->tensor[p->arg[arg]];
}

/* The least or the largest value that the guards of the variant leave a symbol; 1 where there is none. */
static int64_t value_of(const place *p, uint32_t symbol, bool most)
{
    if (symbol == SX_MODULE_NONE) {
        return 1;
    }
    const sx_module_symbol *s = &p->module->symbol[symbol];
    int64_t low = p->module->range[s->range_first].low;
    int64_t high = p->module->range[s->range_first + s->range_count - 1].high;
    for (uint32_t i = 0; i < p->variant->guard_count; i++) {
        const sx_module_guard *guard = &p->module->guard[p->variant->guard_first + i];
        bool equal = guard->kind == SX_GUARD_EQUAL;
        if (guard->subject == symbol && (equal || guard->kind == SX_GUARD_RANGE)) {
            int64_t last = equal ? guard->low : guard->high;
            low = guard->low > low && guard->low <= high ? guard->low : low;
            high = last < high && last >= low ? last : high;
        }
    }
    return most ? high : low;
}

/* How many bytes a tensor has in this variant at least, or at most. */
static uint64_t bytes_of(const place *p, uint32_t tensor, bool most)
{
    const sx_module_tensor *t = &p->module->tensor[tensor];
    uint32_t rows;
    const sx_module_extent *row = sx_module_extents_of(p->module, SX_EXTENT_TENSOR, tensor, &rows);
    if (rows == 0) {
        return t->size;
    }
    int64_t bytes = t->element_bytes;
    for (uint32_t d = 0; d < t->rank; d++) {
        int64_t extent = 0;
        bool follows = false;
        for (uint32_t i = 0; i < rows; i++) {
            int64_t product;
            if (row[i].dimension != d) {
                continue;
            }
            follows = true;
            if (!sx_module_extent_product(&row[i], value_of(p, row[i].symbol, most),
                                          value_of(p, row[i].other, most), &product) ||
                !sx_add_i64(extent, product, &extent)) {
                return most ? UINT64_MAX : 0;
            }
        }
        extent = follows ? extent : t->dim[d];
        if (extent < 0 || !sx_mul_i64(bytes, extent, &bytes)) {
            return most ? UINT64_MAX : 0;
        }
    }
    return (uint64_t)bytes;
}

/* ---- one function for each kind ---- */

static sx_code check_kernel(const place *p)
{
    const sx_module_launch *launch = p->launch;
    if (launch->kernel >= p->module->kernel_count) {
        return BAD(p, "kernel %u, module has %llu", launch->kernel, U(p->module->kernel_count));
    }
    const sx_module_kernel *kernel = &p->module->kernel[launch->kernel];
    if (launch->arg_count != kernel->arg_count) {
        return BAD(p, "%u arguments, kernel %u has %u", launch->arg_count, launch->kernel,
                   kernel->arg_count);
    }
    if (p->machine.level[kernel->arch] < kernel->level) {
        const char *has = sx_level_name(kernel->arch, p->machine.level[kernel->arch]);
        return BAD(p, "kernel %u needs %s, variant %u is for %s", launch->kernel,
                   sx_level_name(kernel->arch, kernel->level), p->variant_index,
                   has != NULL ? has
                               : sx_level_name(p->module->info->arch, p->module->info->level));
    }
    return sx_module_check_mapped(p->cx, p->module, p->index);
}

static sx_code check_copy(const place *p)
{
    if (p->launch->arg_count != 2) {
        return BAD(p, "%u arguments, expected 2", p->launch->arg_count);
    }
    const sx_module_tensor *from = tensor_of(p, 0), *to = tensor_of(p, 1);
    bool enough = sx_module_same_bytes(p->module, p->arg[0], p->arg[1]) ||
                  bytes_of(p, p->arg[0], false) >= bytes_of(p, p->arg[1], true);
    if (!enough || p->arg[0] == p->arg[1] || from->dtype != to->dtype) {
        return BAD(p, "tensor %u of %llu bytes to tensor %u of %llu, element types %u and %u",
                   p->arg[0], U(from->size), p->arg[1], U(to->size), from->dtype, to->dtype);
    }
    return SX_OK;
}

static sx_code check_fill(const place *p)
{
    if (p->launch->arg_count != 1) {
        return BAD(p, "%u arguments, expected 1", p->launch->arg_count);
    }
    uint32_t bytes = tensor_of(p, 0)->element_bytes;
    if (bytes > 8 || (bytes < 8 && p->launch->value >> (8 * bytes) != 0)) {
        return BAD(p, "value %llx for elements of %u bytes", U(p->launch->value), bytes);
    }
    return SX_OK;
}

static sx_code check_collective(const place *p)
{
    return sx_module_check_collective(p->cx, p->module, p->index);
}

static sx_code check_loop(const place *p)
{
    const sx_module_launch *launch = p->launch;
    if (launch->value < 1 || launch->value > (uint64_t)SX_EXTENT_MAX || launch->arg_count > 1) {
        return BAD(p, "%llu rounds, %u arguments", U(launch->value), launch->arg_count);
    }
    if (launch->arg_count == 1) {
        const sx_module_tensor *counter = tensor_of(p, 0);
        if (counter->size != 8 || counter->element_bytes != 8 ||
            counter->place != SX_TENSOR_TEMPORARY) {
            return BAD(p, "counts in tensor %u, a %s of %llu bytes; expected a temporary of 8",
                       p->arg[0], sx_module_place_name(counter->place), U(counter->size));
        }
    }
    return SX_OK;
}

/* What says how a branch or while goes on, and the launches that it chooses from. */
static sx_code check_choice(const place *p)
{
    const sx_module_launch *launch = p->launch;
    if (launch->arg_count != 1 || launch->first > launch->body) {
        return BAD(p, "%u arguments, expected 1; the first %u of %u launches", launch->arg_count,
                   launch->first, launch->body);
    }
    const sx_module_tensor *truth = tensor_of(p, 0);
    if (truth->dtype != SX_MODULE_TRUTH || truth->element_bytes != 1 || truth->size != 1) {
        return BAD(p, "asks tensor %u of %llu bytes, element type %u; expected one bool", p->arg[0],
                   U(truth->size), truth->dtype);
    }
    return SX_OK;
}

static sx_code check_while(const place *p)
{
    if (p->launch->value < 1 || p->launch->value > SX_MODULE_ROUNDS_MAX) {
        return BAD(p, "%llu rounds, 1 to %llu", U(p->launch->value), U(SX_MODULE_ROUNDS_MAX));
    }
    return check_choice(p);
}

static sx_code check_host(const place *p)
{
    if (p->launch->name.size == 0 || p->launch->value > p->launch->arg_count) {
        return BAD(p, "%llu results of %u arguments, name of %u letters", U(p->launch->value),
                   p->launch->arg_count, p->launch->name.size);
    }
    return SX_OK;
}

/* What is cut into pieces, and a piece; which rounds there are is check_nesting's question. */
static sx_code check_piece(const place *p)
{
    if (p->launch->arg_count != 2) {
        return BAD(p, "%u arguments, expected 2", p->launch->arg_count);
    }
    const sx_module_tensor *from = tensor_of(p, 0), *to = tensor_of(p, 1);
    if (p->arg[0] == p->arg[1] || from->dtype != to->dtype) {
        return BAD(p, "from tensor %u to tensor %u, element types %u and %u", p->arg[0], p->arg[1],
                   from->dtype, to->dtype);
    }
    return SX_OK;
}

static sx_code (*const check_kind[SX_LAUNCH_KIND_COUNT])(const place *p) = {
    [SX_LAUNCH_KERNEL] = check_kernel, [SX_LAUNCH_COPY] = check_copy,
    [SX_LAUNCH_FILL] = check_fill,     [SX_LAUNCH_COLLECTIVE] = check_collective,
    [SX_LAUNCH_LOOP] = check_loop,     [SX_LAUNCH_HOST] = check_host,
    [SX_LAUNCH_SLICE] = check_piece,   [SX_LAUNCH_ROW] = check_piece,
    [SX_LAUNCH_BRANCH] = check_choice, [SX_LAUNCH_WHILE] = check_while};

/* ---- what all of them must say ---- */

uint32_t sx_module_results(const sx_module *module, const sx_module_launch *launch)
{
    switch ((sx_module_launch_kind)launch->kind) {
    case SX_LAUNCH_KERNEL: return module->kernel[launch->kernel].result_count;
    case SX_LAUNCH_COPY:
    case SX_LAUNCH_FILL:
    case SX_LAUNCH_SLICE:
    case SX_LAUNCH_ROW:
    case SX_LAUNCH_COLLECTIVE: return 1;
    case SX_LAUNCH_LOOP: return launch->arg_count;
    case SX_LAUNCH_HOST: return (uint32_t)launch->value;
    case SX_LAUNCH_BRANCH:
    case SX_LAUNCH_WHILE: return 0;
    case SX_LAUNCH_KIND_COUNT: break;
    }
    SX_UNREACHABLE();
}

/* Which fields the launches of a kind have. */
static const struct {
    bool kernel, value, name, first, ranks;
    uint32_t body_least, body_most;
} fields_of[SX_LAUNCH_KIND_COUNT] = {
    [SX_LAUNCH_KERNEL] = {.kernel = true},
    [SX_LAUNCH_FILL] = {.value = true},
    [SX_LAUNCH_COLLECTIVE] = {.value = true, .name = true, .ranks = true},
    [SX_LAUNCH_LOOP] = {.value = true, .body_least = 1, .body_most = UINT32_MAX},
    [SX_LAUNCH_HOST] = {.value = true, .name = true},
    [SX_LAUNCH_BRANCH] = {.first = true, .body_least = 1, .body_most = UINT32_MAX},
    [SX_LAUNCH_WHILE] = {.value = true, .first = true, .body_most = UINT32_MAX}};

/* Fields that only some kinds have are empty in the others, so that equal launches have equal records. */
static sx_code check_fields(const place *p)
{
    const sx_module_launch *launch = p->launch;
    SX_ASSERT(launch->kind < SX_LAUNCH_KIND_COUNT);
    bool empty = (fields_of[launch->kind].kernel || launch->kernel == SX_MODULE_NONE) &&
                 (fields_of[launch->kind].value || launch->value == 0) &&
                 (fields_of[launch->kind].name || launch->name.size == 0) &&
                 (fields_of[launch->kind].first || launch->first == 0) &&
                 (fields_of[launch->kind].ranks ||
                  (launch->combine == 0 && launch->pair_first == 0 && launch->pair_count == 0)) &&
                 launch->body >= fields_of[launch->kind].body_least &&
                 launch->body <= fields_of[launch->kind].body_most;
    if (!empty || launch->prologue > 1) {
        return BAD(p, "kernel %u, body %u, value %llu, name of %u letters, prologue %u",
                   launch->kernel, launch->body, U(launch->value), launch->name.size,
                   launch->prologue);
    }
    return SX_OK;
}

static sx_code check_args(const place *p)
{
    const sx_module_launch *launch = p->launch;
    for (uint32_t k = 0; k < launch->arg_count; k++) {
        uint32_t owner = p->module->tensor[p->arg[k]].variant;
        if (owner != SX_MODULE_NONE && owner != p->variant_index) {
            return BAD(p, "argument %u is tensor %u of variant %u, the launch is of variant %u", k,
                       p->arg[k], owner, p->variant_index);
        }
    }
    return SX_OK;
}

static sx_code check_written(const place *p)
{
    const sx_module_launch *launch = p->launch;
    uint32_t results = sx_module_results(p->module, launch);
    for (uint32_t k = launch->arg_count - results; k < launch->arg_count; k++) {
        uint32_t to = tensor_of(p, k)->place;
        bool may = to == SX_TENSOR_TEMPORARY ||
                   (launch->prologue == 1 ? to == SX_TENSOR_PERSISTENT
                                          : to == SX_TENSOR_OUTPUT || to == SX_TENSOR_STATE);
        if (!may) {
            return BAD(p, "writes tensor %u, a %s, %s", p->arg[k], sx_module_place_name(to),
                       launch->prologue == 1 ? "in the prologue" : "in a run");
        }
    }
    return SX_OK;
}

static sx_code check_launch(place *p)
{
    const sx_module_launch *launch = p->launch;
    if (launch->kind >= SX_LAUNCH_KIND_COUNT) {
        return BAD(p, "kind %u, %d are known", launch->kind, SX_LAUNCH_KIND_COUNT);
    }
    if (launch->arg_first > p->module->arg_count ||
        launch->arg_count > p->module->arg_count - launch->arg_first ||
        launch->arg_count > SX_MODULE_ARGS_MAX) {
        return BAD(p, "arguments %u and %u more of %llu, at most %u", launch->arg_first,
                   launch->arg_count, U(p->module->arg_count), SX_MODULE_ARGS_MAX);
    }
    p->arg = p->module->arg + launch->arg_first;
    SX_TRY(check_fields(p));
    SX_TRY(check_args(p));
    SX_TRY(check_kind[launch->kind](p));
    return check_written(p);
}

/* ---- loops ---- */

/* A slice or row is of a loop that is open, and has a piece for each of its rounds. */
static sx_code check_pieces(place *p, const uint32_t *open, uint32_t depth)
{
    const sx_module_launch *launch = p->launch;
    if (launch->kind != SX_LAUNCH_SLICE && launch->kind != SX_LAUNCH_ROW) {
        return SX_OK;
    }
    p->arg = p->module->arg + launch->arg_first;
    const sx_module_launch *loop = depth > 0 ? &p->module->launch[open[depth - 1]] : NULL;
    if (loop == NULL || loop->kind != SX_LAUNCH_LOOP) {
        return BAD(p, "of %u arguments, not directly in a loop", launch->arg_count);
    }
    uint32_t cut = launch->kind == SX_LAUNCH_SLICE ? 0 : 1;
    uint64_t whole = bytes_of(p, p->arg[cut], false), piece = bytes_of(p, p->arg[1 - cut], true);
    if (piece == 0 || loop->value > whole / piece) {
        return BAD(p, "%llu rounds, tensor %u of %llu bytes has pieces of %llu", U(loop->value),
                   p->arg[cut], U(whole), U(piece));
    }
    return SX_OK;
}

/* Where the launches end that are run in a row with the one at `index`, inside of launch `open`. */
static uint32_t end_of_range(const sx_module *module, uint32_t open, uint32_t index)
{
    const sx_module_launch *outer = &module->launch[open];
    uint32_t middle = open + 1 + outer->first;
    SX_ASSERT(index > open && outer->first <= outer->body);
    return index < middle ? middle : open + 1 + outer->body;
}

/* Bodies lie inside each other and inside the variant, none of them in both ranges of another, and run when what is
 * around them does. */
static sx_code check_nesting(place *p, uint32_t end)
{
    uint32_t open_end[SX_MODULE_LOOPS_MAX], open[SX_MODULE_LOOPS_MAX];
    uint32_t depth = 0;
    for (p->index = p->variant->launch_first; p->index < end; p->index++) {
        p->launch = &p->module->launch[p->index];
        while (depth > 0 && p->index >= open_end[depth - 1]) {
            depth--;
        }
        uint32_t limit = depth > 0 ? end_of_range(p->module, open[depth - 1], p->index) : end;
        if (depth > 0 && p->module->launch[open[depth - 1]].prologue != p->launch->prologue) {
            return BAD(p, "prologue %u inside loop %u, which is not", p->launch->prologue,
                       open[depth - 1]);
        }
        SX_TRY(check_pieces(p, open, depth));
        if (fields_of[p->launch->kind].body_most == 0) {
            continue;
        }
        if (p->launch->body > limit - p->index - 1 || depth == SX_MODULE_LOOPS_MAX) {
            return BAD(p, "body of %u launches, %u are left; %u loops around it, at most %u",
                       p->launch->body, limit - p->index - 1, depth, SX_MODULE_LOOPS_MAX);
        }
        open[depth] = p->index;
        open_end[depth++] = p->index + 1 + p->launch->body;
    }
    return SX_OK;
}

/* ---- results of prologues that all variants share ---- */

static bool is_shared(const sx_module *module, uint32_t tensor)
{
    return module->tensor[tensor].place == SX_TENSOR_PERSISTENT &&
           module->tensor[tensor].variant == SX_MODULE_NONE;
}

bool sx_module_shares_result(const sx_module *module, const sx_module_launch *launch)
{
    return launch->kind == SX_LAUNCH_KERNEL &&
           is_shared(module, module->arg[launch->arg_first + launch->arg_count - 1]);
}

/* Nothing that a run or a variant brings along has a part in what the launch makes. */
static bool is_same_for_all(const place *p)
{
    const sx_module *module = p->module;
    const sx_module_launch *launch = p->launch;
    bool same = launch->kind == SX_LAUNCH_KERNEL;
    for (uint32_t k = 0; same && k < launch->arg_count; k++) {
        uint32_t from = tensor_of(p, k)->place;
        same = is_shared(module, p->arg[k]) ||
               (k + sx_module_results(module, launch) < launch->arg_count &&
                (from == SX_TENSOR_WEIGHT || from == SX_TENSOR_CONSTANT));
    }
    const sx_module_kernel *kernel = same ? &module->kernel[launch->kernel] : NULL;
    for (uint32_t k = 0; same && k < kernel->part_count; k++) {
        uint32_t rows;
        (void)sx_module_extents_of(module, SX_EXTENT_PART, kernel->part_first + k, &rows);
        same = rows == 0;
        (void)sx_module_cases_of(module, kernel->part_first + k, &rows);
        same = same && rows == 0;
    }
    return same;
}

static bool is_same_launch(const place *p, const sx_module_launch *other)
{
    const sx_module_launch *launch = p->launch;
    return other->kernel == launch->kernel && other->arg_count == launch->arg_count &&
           memcmp(p->module->arg + other->arg_first, p->arg, launch->arg_count * sizeof(*p->arg)) ==
               0;
}

/* What is known of the shared tensors. */
typedef struct {
    uint32_t *writer; /* [tensor_count] the first launch that writes it; SX_MODULE_NONE: none yet */
    uint32_t *made_in; /* [tensor_count] 1 + the last variant whose prologue has written it */
} shared_tensors;

/* Whichever variant runs first makes a shared tensor for all, so that all must make the same of it. */
static sx_code check_shared(const place *p, bool in_loop, shared_tensors *shared)
{
    const sx_module_launch *launch = p->launch;
    uint32_t first_result = launch->arg_count - sx_module_results(p->module, launch);
    for (uint32_t k = 0; k < launch->arg_count; k++) {
        uint32_t tensor = p->arg[k];
        if (!is_shared(p->module, tensor)) {
            continue;
        }
        if (k < first_result) {
            if (shared->made_in[tensor] != p->variant_index + 1) {
                return BAD(p,
                           "reads tensor %u, which all variants share, before variant %u makes it",
                           tensor, p->variant_index);
            }
            continue;
        }
        uint32_t writer = shared->writer[tensor];
        if (in_loop || !is_same_for_all(p)) {
            return BAD(p, "writes tensor %u, which all variants share, from what not all have",
                       tensor);
        }
        if (writer != SX_MODULE_NONE && !is_same_launch(p, &p->module->launch[writer])) {
            return BAD(p, "writes tensor %u, which all variants share, otherwise than launch %u",
                       tensor, writer);
        }
        shared->writer[tensor] = writer != SX_MODULE_NONE ? writer : p->index;
        shared->made_in[tensor] = p->variant_index + 1;
    }
    return SX_OK;
}

/* The prologue of the variant, then its run. */
static sx_code check_sharing(place *p, uint32_t end, shared_tensors *shared)
{
    for (uint32_t phase = 2; phase-- > 0;) {
        uint32_t loop_end = 0; /* of the outermost loop */
        for (p->index = p->variant->launch_first; p->index < end; p->index++) {
            p->launch = &p->module->launch[p->index];
            p->arg = p->module->arg + p->launch->arg_first;
            bool in_loop = p->index < loop_end;
            loop_end = in_loop ? loop_end : p->index + 1 + p->launch->body;
            if (p->launch->prologue == phase) {
                SX_TRY(check_shared(p, in_loop, shared));
            }
        }
    }
    return SX_OK;
}

sx_code sx_module_check_launches(sx_ctx *cx, const sx_module *module)
{
    shared_tensors shared = {.writer = SX_NEW_ARRAY(cx, uint32_t, module->tensor_count + 1),
                             .made_in = SX_NEW_ARRAY(cx, uint32_t, module->tensor_count + 1)};
    if (shared.writer == NULL || shared.made_in == NULL) {
        return cx->error.code;
    }
    memset(shared.writer, 0xff, (size_t)module->tensor_count * sizeof(*shared.writer));
    for (uint32_t v = 0; v < module->variant_count; v++) {
        place p = {.cx = cx, .module = module, .variant = &module->variant[v], .variant_index = v};
        p.machine.level[module->info->arch] = module->info->level;
        for (uint32_t i = 0; i < p.variant->guard_count; i++) {
            const sx_module_guard *guard = &module->guard[p.variant->guard_first + i];
            uint32_t *level =
                guard->kind == SX_GUARD_MACHINE ? &p.machine.level[guard->subject] : NULL;
            if (level != NULL && guard->low > *level) {
                *level = (uint32_t)guard->low;
            }
        }
        uint32_t end = p.variant->launch_first + p.variant->launch_count;
        for (p.index = p.variant->launch_first; p.index < end; p.index++) {
            p.launch = &module->launch[p.index];
            SX_TRY(check_launch(&p));
        }
        SX_TRY(check_nesting(&p, end));
        SX_TRY(check_sharing(&p, end, &shared));
    }
    return SX_OK;
}
