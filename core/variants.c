/* variants.c - a request may give a symbol several values, and name several machines: each combination is a
 * variant of the module. */
#include "core/pipeline.h"

#include <string.h>

#include "core/ir/check.h"
#include "core/ir/extent.h"

/* Puts a value into the ascending list of its symbol. */
static sx_code put_value(sx_ctx *cx, sx_pipe_values *symbol, int64_t value)
{
    uint32_t at = symbol->count;
    while (at > 0 && symbol->piece[at - 1].low >= value) {
        at--;
    }
    if (at < symbol->count && symbol->piece[at].low == value) {
        return SX_FAIL(cx, SX_INPUT, "symbol \"%s\" has the value %lld twice",
                       sx_short_name(symbol->name).text, (long long)value);
    }
    for (uint32_t i = symbol->count; i > at; i--) {
        symbol->piece[i] = symbol->piece[i - 1];
    }
    symbol->piece[at] = (sx_pipe_piece){.low = value, .high = value};
    symbol->count++;
    return SX_OK;
}

static sx_pipe_values *find_values(sx_pipe_variants *variants, sx_span name)
{
    uint32_t s = 0;
    while (s < variants->symbol_count && !sx_span_equal(variants->symbol[s].name, name)) {
        s++;
    }
    return &variants->symbol[s]; /* behind the last one: none yet */
}

static sx_code put_binding(sx_ctx *cx, sx_pipe_variants *variants, const sx_binding *binding,
                           uint32_t most)
{
    sx_pipe_values *symbol = find_values(variants, binding->name);
    if (symbol->count == 0) {
        variants->symbol_count++;
        symbol->name = binding->name;
        symbol->piece = SX_NEW_ARRAY(cx, sx_pipe_piece, most);
    }
    return symbol->piece != NULL ? put_value(cx, symbol, binding->value) : cx->error.code;
}

/* A piece for each value of the interval; for the widest ones, which sx_pipe_cut cuts, a single piece. */
static sx_code put_interval(sx_ctx *cx, sx_pipe_variants *variants, const sx_interval *interval,
                            bool whole)
{
    sx_pipe_values *symbol = find_values(variants, interval->name);
    int64_t more = whole ? 0 : interval->high - interval->low;
    SX_ASSERT(symbol->count == 0); /* sx_core_check_extents */
    if (more >= SX_PIPE_VARIANTS_MAX) {
        return SX_FAIL(cx, SX_LIMIT,
                       "symbol \"%s\": the interval %lld..%lld makes more than %u variants",
                       sx_short_name(interval->name).text, (long long)interval->low,
                       (long long)interval->high, SX_PIPE_VARIANTS_MAX);
    }
    *symbol = (sx_pipe_values){.name = interval->name, .interval = true};
    variants->symbol_count++;
    symbol->piece = SX_NEW_ARRAY(cx, sx_pipe_piece, (size_t)more + 1);
    if (symbol->piece == NULL) {
        return cx->error.code;
    }
    for (int64_t value = interval->low; value <= interval->low + more; value++) {
        symbol->piece[symbol->count++] =
            (sx_pipe_piece){.low = value, .high = whole ? interval->high : value};
    }
    return SX_OK;
}

/* How many intervals are wider, or as wide and before it by name. */
static uint32_t count_wider(const sx_core_request *request, const sx_interval *of)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < request->interval_count; i++) {
        const sx_interval *a = &request->interval[i];
        int64_t more = (a->high - a->low) - (of->high - of->low);
        count += more > 0 || (more == 0 && sx_span_compare(a->name, of->name) < 0) ? 1 : 0;
    }
    return count;
}

sx_code sx_pipe_variants_make(sx_ctx *cx, const sx_core_request *request,
                              sx_pipe_variants *variants)
{
    uint32_t most = request->binding_count;
    *variants = (sx_pipe_variants){
        .symbol = SX_NEW_ARRAY(cx, sx_pipe_values, most + request->interval_count + 1)};
    if (variants->symbol == NULL) {
        return cx->error.code;
    }
    SX_TRY(sx_core_check_extents(cx, request));
    SX_TRY(sx_pipe_machines(cx, request, &variants->machine, &variants->machine_count));
    variants->count = variants->machine_count;
    for (uint32_t i = 0; i < most; i++) {
        SX_TRY(put_binding(cx, variants, &request->binding[i], most));
    }
    for (uint32_t i = 0; i < request->interval_count; i++) {
        const sx_interval *interval = &request->interval[i];
        bool whole = count_wider(request, interval) < SX_PIPE_STEADY_MAX;
        SX_TRY(put_interval(cx, variants, interval, whole));
    }
    for (uint32_t s = 0; s < variants->symbol_count; s++) {
        const sx_pipe_values *symbol = &variants->symbol[s];
        if (symbol->count > SX_PIPE_VARIANTS_MAX / variants->count) {
            return SX_FAIL(cx, SX_LIMIT, "symbol \"%s\" with %u values makes more than %u variants",
                           sx_short_name(symbol->name).text, symbol->count, SX_PIPE_VARIANTS_MAX);
        }
        variants->count *= symbol->count;
    }
    return SX_OK;
}

/* The piece of a symbol that a variant serves. */
static sx_pipe_piece piece_of(const sx_pipe_variants *variants, uint32_t variant, uint32_t symbol)
{
    SX_ASSERT(variant < variants->count && symbol < variants->symbol_count);
    for (uint32_t s = variants->symbol_count; --s > symbol;) {
        variant /= variants->symbol[s].count;
    }
    return variants->symbol[symbol].piece[variant % variants->symbol[symbol].count];
}

uint32_t sx_pipe_variant_pieces(const sx_pipe_variants *variants, uint32_t variant,
                                uint32_t symbol[SX_PIPE_STEADY_MAX],
                                sx_pipe_piece piece[SX_PIPE_STEADY_MAX])
{
    uint32_t count = 0;
    for (uint32_t s = 0; s < variants->symbol_count; s++) {
        sx_pipe_piece its = piece_of(variants, variant, s);
        if (its.low == its.high) {
            continue;
        }
        SX_ASSERT(count < SX_PIPE_STEADY_MAX); /* others have a piece for each value */
        bool wider = count > 0 && its.high - its.low > piece[0].high - piece[0].low;
        if (wider) {
            symbol[1] = symbol[0];
            piece[1] = piece[0];
        }
        symbol[wider ? 0 : count] = s;
        piece[wider ? 0 : count++] = its;
        count += wider ? 1 : 0;
    }
    return count;
}

sx_code sx_pipe_check_intervals(sx_ctx *cx, const sx_core_request *request, const sx_graph *graph)
{
    for (uint32_t i = 0; i < request->interval_count; i++) {
        const sx_interval *interval = &request->interval[i];
        for (uint32_t s = 0; s < graph->symbol_count; s++) {
            const sx_symbol *symbol = &graph->symbol[s];
            if (sx_span_equal(symbol->name, interval->name) &&
                (interval->low < symbol->low || interval->high > symbol->high)) {
                return SX_FAIL(
                    cx, SX_INPUT,
                    "symbol \"%s\": the interval %lld..%lld is not inside of [%lld, %lld], which "
                    "the program declares",
                    sx_short_name(symbol->name).text, (long long)interval->low,
                    (long long)interval->high, (long long)symbol->low, (long long)symbol->high);
            }
        }
    }
    return SX_OK;
}

bool sx_pipe_is_fixed(const sx_pipe_values *symbol)
{
    SX_ASSERT(symbol->count > 0);
    return symbol->piece[0].low == symbol->piece[symbol->count - 1].high;
}

const sx_pipe_machine *sx_pipe_variant_machine(const sx_pipe_variants *variants, uint32_t variant)
{
    SX_ASSERT(variant < variants->count);
    return &variants->machine[variant / (variants->count / variants->machine_count)];
}

void sx_pipe_variant_binding(const sx_pipe_variants *variants, uint32_t variant,
                             sx_binding *binding)
{
    SX_ASSERT(variant < variants->count);
    for (uint32_t s = variants->symbol_count; s-- > 0;) { /* the last symbol counts fastest */
        const sx_pipe_values *symbol = &variants->symbol[s];
        binding[s] = (sx_binding){symbol->name, symbol->piece[variant % symbol->count].high};
        variant /= symbol->count;
    }
}

void sx_pipe_put_symbols(const sx_pipe_variants *variants, sx_image *image)
{
    for (uint32_t s = 0; s < variants->symbol_count; s++) {
        const sx_pipe_values *symbol = &variants->symbol[s];
        uint32_t count = symbol->interval ? 1 : symbol->count;
        sx_module_symbol record = {.name = sx_module_put_text(&image->strings, symbol->name),
                                   .range_first =
                                       (uint32_t)(image->range.len / sizeof(sx_module_range)),
                                   .range_count = count};
        sx_buf_put(&image->symbol, &record, sizeof(record));
        for (uint32_t i = 0; i < count; i++) {
            int64_t high =
                symbol->interval ? symbol->piece[symbol->count - 1].high : symbol->piece[i].high;
            sx_module_range range = {symbol->piece[i].low, high, 1};
            sx_buf_put(&image->range, &range, sizeof(range));
        }
    }
}

static void put_guard(sx_image *image, sx_module_variant *variant, const sx_module_guard *guard)
{
    sx_buf_put(&image->guard, guard, sizeof(*guard));
    sx_buf_put_text(&image->strings,
                    image->strings.len > variant->name.offset ? " " : ""); /* between two names */
    variant->guard_count++;
}

/* "batch=4 heads=2..8 x86-64-v4": a guard for each symbol with several values, and one for the machine unless it is
 * the least. With several machines each name has one. */
static void put_guards(const sx_pipe *pipe, sx_module_variant *variant)
{
    sx_image *image = pipe->image;
    variant->guard_first = (uint32_t)(image->guard.len / sizeof(sx_module_guard));
    variant->name.offset = (uint32_t)image->strings.len;
    for (uint32_t s = 0; s < pipe->variants->symbol_count; s++) {
        if (pipe->variants->symbol[s].count == 1) {
            continue;
        }
        sx_pipe_piece piece = piece_of(pipe->variants, pipe->variant, s);
        bool several = piece.high > piece.low;
        sx_module_guard guard = {.kind = several ? SX_GUARD_RANGE : SX_GUARD_EQUAL,
                                 .subject = s,
                                 .low = piece.low,
                                 .high = several ? piece.high : 0};
        put_guard(image, variant, &guard);
        sx_buf_put_span(&image->strings, pipe->binding[s].name);
        sx_buf_print(&image->strings, "=%lld", (long long)piece.low);
        if (several) {
            sx_buf_print(&image->strings, "..%lld", (long long)piece.high);
        }
    }
    const sx_pipe_machine *machine = pipe->machine;
    if (machine->level > image->info.level) {
        sx_module_guard guard = {
            .kind = SX_GUARD_MACHINE, .subject = machine->arch, .low = machine->level};
        put_guard(image, variant, &guard);
        sx_buf_put_text(&image->strings, machine->device->name);
    } else if (pipe->variants->machine_count > 1) {
        sx_buf_print(&image->strings, "%s%s", image->strings.len > variant->name.offset ? " " : "",
                     machine->device->name);
    }
    variant->name.size = (uint32_t)image->strings.len - variant->name.offset;
}

void sx_pipe_put_variant(sx_pipe *pipe)
{
    sx_module_variant variant = {.launch_first = pipe->launch_first,
                                 .launch_count = pipe->launch_count - pipe->launch_first,
                                 .flops = pipe->flops,
                                 .cost_ns = pipe->cost_ns,
                                 .floor_ns = pipe->floor_ns};
    put_guards(pipe, &variant);
    sx_buf_put(&pipe->image->variant, &variant, sizeof(variant));
}

/* ---- tensors of all variants ---- */

/* The interface tensor of this place and name that an earlier variant made; UINT32_MAX if there is none. */
static uint32_t find_shared(const sx_pipe *pipe, sx_module_place place, sx_span name)
{
    for (uint32_t i = 0; i < pipe->tensor_count; i++) {
        const sx_module_tensor *record = &pipe->tensor[i].record;
        sx_span its = {pipe->image->strings.ptr + record->name.offset, record->name.size};
        if (record->place == (uint32_t)place && sx_span_equal(its, name)) {
            return i;
        }
    }
    return UINT32_MAX;
}

sx_code sx_pipe_add_shared(sx_ctx *cx, sx_pipe *pipe, sx_span name, const sx_type *type,
                           const sx_type *symbolic, sx_module_place place, uint32_t *index)
{
    uint64_t size = (uint64_t)sx_tensor_elements(type) * sx_dtype_bytes(type->dtype);
    *index = pipe->variant > 0 ? find_shared(pipe, place, name) : UINT32_MAX;
    if (*index == UINT32_MAX) {
        SX_TRY(sx_pipe_add_tensor(cx, pipe, name, type, size, place, index));
    }
    sx_pipe_tensor *tensor = &pipe->tensor[*index];
    SX_ASSERT(tensor->record.rank == type->rank);
    tensor->symbolic = symbolic;
    for (uint32_t d = 0; d < type->rank; d++) {
        tensor->record.dim[d] = sx_max_i64(tensor->record.dim[d], type->dim[d].scale);
    }
    tensor->record.size = size > tensor->record.size ? size : tensor->record.size;
    return SX_OK;
}

/* The number of a symbol of the program among those of the request. */
static uint32_t symbol_of(const sx_pipe *pipe, uint32_t symbol)
{
    uint32_t s = 0;
    while (s < pipe->variants->symbol_count &&
           !sx_span_equal(pipe->variants->symbol[s].name, pipe->better->symbol[symbol].name)) {
        s++;
    }
    SX_ASSERT(s < pipe->variants->symbol_count); /* or the program would not be bound */
    return s;
}

/* A term of an extent as a row of EXTENTS: a number times the values of the symbols of the request that have several,
 * at most two. false: there are more, or the number overflows. */
static bool read_term(const sx_pipe *pipe, const sx_term *term, sx_module_extent *row)
{
    bool ok = true;
    *row = (sx_module_extent){
        .symbol = SX_MODULE_NONE, .other = SX_MODULE_NONE, .scale = term->scale, .divisor = 1};
    for (uint32_t k = 0; k < SX_FACTORS_MAX && term->factor[k] != SX_NO_SYMBOL; k++) {
        uint32_t symbol = symbol_of(pipe, term->factor[k]);
        const sx_pipe_values *values = &pipe->variants->symbol[symbol];
        if (sx_pipe_is_fixed(values)) {
            ok = ok && sx_mul_i64(row->scale, values->piece[0].low, &row->scale);
        } else if (row->symbol == SX_MODULE_NONE) {
            row->symbol = symbol;
        } else {
            ok = ok && row->other == SX_MODULE_NONE;
            row->other = row->symbol > symbol ? row->symbol : symbol;
            row->symbol = row->symbol > symbol ? symbol : row->symbol;
        }
    }
    return ok;
}

static bool ascends(const sx_module_extent *a, const sx_module_extent *b)
{
    return a->symbol != b->symbol ? a->symbol < b->symbol : a->other < b->other;
}

/* An extent of the program as rows of EXTENTS: so many times the value of each symbol of the request that has several,
 * or of two of them, and a number. false: it follows a product of three, or is less for larger values; *symbol is one
 * of these. */
static bool read_extent(const sx_pipe *pipe, sx_dim dim, sx_module_extent *row, uint32_t *count,
                        uint32_t *symbol)
{
    const sx_symbol *symbols = pipe->better->symbol;
    sx_polynomial p;
    bool ok = sx_polynomial_of(symbols, dim, &p);
    *count = 0;
    *symbol = SX_MODULE_NONE;
    SX_ASSERT(ok); /* the program has been checked */
    for (uint32_t i = 0; i < p.count; i++) {
        sx_module_extent more;
        uint32_t at = 0;
        ok = read_term(pipe, &p.term[i], &more) && ok;
        while (at < *count && ascends(&row[at], &more)) {
            at++;
        }
        *symbol = more.symbol != SX_MODULE_NONE ? more.symbol : *symbol;
        if (at < *count && !ascends(&more, &row[at])) { /* the same symbols */
            ok = ok && sx_add_i64(row[at].scale, more.scale, &row[at].scale);
            continue;
        }
        memmove(&row[at + 1], &row[at], (*count - at) * sizeof(*row));
        row[at] = more;
        (*count)++;
    }
    uint32_t left = 0;
    for (uint32_t i = 0; i < *count; i++) {
        ok = ok && (row[i].scale >= 0 || row[i].symbol == SX_MODULE_NONE);
        row[left] = row[i];
        left += row[i].scale != 0 ? 1 : 0;
    }
    *count = left;
    return ok;
}

static sx_code put_extents(sx_ctx *cx, const sx_pipe *pipe, uint32_t index)
{
    const sx_pipe_tensor *tensor = &pipe->tensor[index];
    for (uint32_t d = 0; tensor->symbolic != NULL && d < tensor->record.rank; d++) {
        sx_dim dim = tensor->symbolic->dim[d];
        sx_module_extent row[SX_TERMS_MAX + 1];
        uint32_t symbol, count;
        bool follows = read_extent(pipe, dim, row, &count, &symbol);
        if (symbol == SX_MODULE_NONE) {
            continue;
        }
        if (!follows) {
            return SX_FAIL(cx, SX_UNIMPLEMENTED,
                           "an extent of \"%.*s\" is %s: give \"%s\" one value",
                           (int)tensor->record.name.size,
                           (const char *)pipe->image->strings.ptr + tensor->record.name.offset,
                           sx_short_dim(pipe->better->symbol, pipe->better->symbol_count, dim).text,
                           sx_short_name(pipe->variants->symbol[symbol].name).text);
        }
        bool state = tensor->record.place == SX_TENSOR_STATE;
        if (tensor->record.place == SX_TENSOR_WEIGHT || state) {
            sx_span own = {pipe->image->strings.ptr + tensor->record.name.offset,
                           tensor->record.name.size};
            return SX_FAIL(cx, SX_UNIMPLEMENTED,
                           "%s \"%s\" has an extent that follows \"%s\": give it one value",
                           state ? "state" : "weight", sx_short_name(own).text,
                           sx_short_name(pipe->variants->symbol[symbol].name).text);
        }
        for (uint32_t k = 0; k < count; k++) {
            row[k].what = SX_EXTENT_TENSOR;
            row[k].index = index;
            row[k].dimension = d;
        }
        sx_buf_put(&pipe->image->extent, row, count * sizeof(*row));
    }
    return SX_OK;
}

sx_code sx_pipe_put_tensors(sx_ctx *cx, sx_pipe *pipe)
{
    for (uint32_t i = 0; i < pipe->tensor_count; i++) {
        SX_TRY(put_extents(cx, pipe, i));
        sx_buf_put(&pipe->image->tensor, &pipe->tensor[i].record, sizeof(sx_module_tensor));
    }
    sx_buf_put_span(&pipe->image->extent,
                    sx_buf_span(&pipe->part_extent)); /* behind those of tensors */
    return SX_OK;
}
