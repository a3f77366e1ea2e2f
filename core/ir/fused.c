#include "core/ir/fused.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "core/ir/fused_body.h"

bool sx_body_combines(const sx_instr *instr)
{
    return instr->kind >= SX_BODY_REDUCE && instr->kind <= SX_BODY_ONLINE;
}

sx_kernel_kind sx_body_kernel_kind(const sx_body *body)
{
    sx_kernel_kind kind = SX_KERNEL_MAP;
    for (uint32_t i = 0; i < body->instr_count; i++) {
        const sx_instr *instr = &body->instr[i];
        if (!sx_body_combines(instr)) {
            continue;
        }
        if (instr->kind == SX_BODY_ONLINE) {
            return SX_KERNEL_ONLINE;
        }
        if (instr->kind == SX_BODY_DOT) {
            kind = body->inner != 0 ? SX_KERNEL_NESTED : SX_KERNEL_DOT;
        } else {
            kind = kind == SX_KERNEL_MAP ? SX_KERNEL_ROW : kind;
        }
    }
    return kind;
}

uint32_t sx_body_summed(const sx_body *body, const sx_instr *instr)
{
    SX_ASSERT(sx_body_combines(instr));
    bool is_inner =
        instr->kind == SX_BODY_DOT && body->inner != 0 && body->instr[instr->x].kind == SX_BODY_ARG;
    return is_inner ? body->inner : body->axes & ~body->inner;
}

static inline uint32_t operand_count(const sx_instr *instr)
{
    static const uint8_t count[SX_BODY_ONLINE + 1] = {
        [SX_BODY_REDUCE] = 1, [SX_BODY_DOT] = 2, [SX_BODY_ONLINE] = 2};
    return instr->kind == SX_BODY_APPLY              ? sx_op_info_of(instr->op)->input_max
           : (uint32_t)instr->kind < SX_COUNT(count) ? count[instr->kind]
                                                     : 0;
}

uint32_t sx_body_operand_count(const sx_instr *instr)
{
    return operand_count(instr);
}

/* ---- hash and equality: over the words that carry meaning ---- */
#define DIM_WORDS 2
#define INSTR_WORDS 4
#define BODY_WORDS_MAX \
    (4 + SX_FUSED_ARGS_MAX * (SX_RANK_MAX + 1) * DIM_WORDS + SX_FUSED_INSTRS_MAX * INSTR_WORDS)

static uint64_t *put_dim(uint64_t *word, sx_dim dim)
{
    *word++ = (uint64_t)dim.scale;
    *word++ = dim.scale == 0 ? SX_NO_SYMBOL : dim.symbol;
    return word;
}

static uint64_t *put_instr(uint64_t *word, const sx_instr *instr)
{
    uint64_t op = 0;
    uint64_t how = 0;
    uint64_t operand[3] = {0, 0, 0};
    uint32_t count = operand_count(instr);
    for (uint32_t k = 0; k < count && k < 3; k++) {
        operand[k] = sx_body_operand(instr, k);
    }
    if (instr->kind == SX_BODY_ARG || instr->kind == SX_BODY_INDEX) {
        operand[0] = instr->x;
    } else if (instr->kind == SX_BODY_IMM) {
        memcpy(&operand[0], &instr->imm, sizeof(instr->imm));
    } else if (instr->kind == SX_BODY_APPLY) {
        op = (uint64_t)instr->op;
        how = instr->op == SX_OP_COMPARE ? (uint64_t)instr->direction : 0;
    } else if (instr->kind == SX_BODY_REDUCE) {
        how = (uint64_t)instr->reducer;
    }
    *word++ = (uint64_t)instr->kind | op << 8 | how << 24 | (uint64_t)instr->dtype << 32;
    *word++ = operand[0];
    *word++ = operand[1];
    *word++ = operand[2];
    return word;
}

static uint32_t body_words(const sx_body *body, uint64_t first[BODY_WORDS_MAX])
{
    SX_ASSERT(body->arg_count <= SX_FUSED_ARGS_MAX && body->instr_count <= SX_FUSED_INSTRS_MAX);
    uint64_t *word = first;
    *word++ = body->arg_count;
    *word++ = body->instr_count;
    *word++ = body->axes;
    *word++ = body->inner;
    for (uint32_t a = 0; a < body->arg_count; a++) {
        for (uint32_t d = 0; d < SX_RANK_MAX; d++) {
            word = put_dim(word, body->access[a].stride[d]);
        }
        word = put_dim(word, body->access[a].offset);
    }
    for (uint32_t i = 0; i < body->instr_count; i++) {
        word = put_instr(word, &body->instr[i]);
    }
    SX_ASSERT(word - first <= BODY_WORDS_MAX);
    return (uint32_t)(word - first);
}

uint64_t sx_body_hash(const sx_body *body)
{
    uint64_t word[BODY_WORDS_MAX];
    uint32_t count = body_words(body, word);
    return sx_hash64((sx_span){(const uint8_t *)word, count * sizeof(word[0])}, 0);
}

static inline uint64_t mixed(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 29;
}

static inline uint64_t mixed_dim(uint64_t hash, sx_dim dim, uint32_t place)
{
    return dim.scale == 0 ? hash
                          : mixed(hash, (uint64_t)dim.scale ^ (uint64_t)dim.symbol << 8 ^
                                            (uint64_t)place << 56);
}

uint64_t sx_body_place(const sx_body *body, uint64_t seed)
{
    SX_ASSERT(body->arg_count <= SX_FUSED_ARGS_MAX && body->instr_count <= SX_FUSED_INSTRS_MAX);
    uint64_t hash = mixed(seed, (uint64_t)body->arg_count << 32 | body->instr_count);
    hash = mixed(hash, (uint64_t)body->axes << 32 | body->inner);
    for (uint32_t a = 0; a < body->arg_count; a++) {
        for (uint32_t d = 0; d < SX_RANK_MAX; d++) {
            hash = mixed_dim(hash, body->access[a].stride[d], d + 1);
        }
        hash = mixed_dim(hash, body->access[a].offset, 0) + 1;
    }
    for (uint32_t i = 0; i < body->instr_count; i++) {
        uint64_t word[INSTR_WORDS];
        (void)put_instr(word, &body->instr[i]);
        hash = mixed(hash, word[0] ^ word[1] << 40 ^ word[1] >> 24);
        hash = mixed(hash, word[2] << 32 ^ word[3]);
    }
    return hash;
}

static inline bool equal_instr(const sx_instr *a, const sx_instr *b)
{
    uint64_t left[INSTR_WORDS];
    uint64_t right[INSTR_WORDS];
    if (a->kind != b->kind || a->dtype != b->dtype ||
        (a->kind == SX_BODY_APPLY && a->op != b->op)) {
        return false;
    }
    (void)put_instr(left, a);
    (void)put_instr(right, b);
    return memcmp(left, right, sizeof(left)) == 0;
}

bool sx_body_equal(const sx_body *a, const sx_body *b)
{
    if (a == b) {
        return true;
    }
    bool same = a->arg_count == b->arg_count && a->instr_count == b->instr_count &&
                a->axes == b->axes && a->inner == b->inner;
    for (uint32_t i = 0; same && i < a->instr_count; i++) {
        same = equal_instr(&a->instr[i], &b->instr[i]);
    }
    for (uint32_t k = 0; same && k < a->arg_count; k++) {
        same = sx_dim_equal(a->access[k].offset, b->access[k].offset);
        for (uint32_t d = 0; same && d < SX_RANK_MAX; d++) {
            same = sx_dim_equal(a->access[k].stride[d], b->access[k].stride[d]);
        }
    }
    return same;
}

/* ---- building ---- */
void sx_body_copy(sx_body *to, const sx_body *from)
{
    SX_ASSERT(from->arg_count <= SX_FUSED_ARGS_MAX && from->instr_count <= SX_FUSED_INSTRS_MAX);
    memcpy(to, from, offsetof(sx_body, access));
    memcpy(to->access, from->access, from->arg_count * sizeof(from->access[0]));
    memcpy(to->instr, from->instr, from->instr_count * sizeof(from->instr[0]));
}

sx_body *sx_body_make(sx_ctx *cx)
{
    sx_body *body = sx_alloc_unset(cx, sizeof(*body));
    if (body == NULL) {
        return NULL;
    }
    memset(body, 0, offsetof(sx_body, access)); /* instructions are written before they are read */
    sx_access *nowhere = &body->access[0];
    for (uint32_t d = 0; d < SX_RANK_MAX; d++) {
        nowhere->stride[d] = sx_dim_of(0);
    }
    nowhere->offset = sx_dim_of(0);
    for (uint32_t a = 1; a < SX_FUSED_ARGS_MAX; a++) {
        body->access[a] = *nowhere;
    }
    return body;
}

bool sx_body_put(sx_body *body, const sx_instr *instr, uint32_t *index)
{
    for (uint32_t i = 0; i < body->instr_count; i++) {
        const sx_instr *other = &body->instr[i];
        if ((instr->kind == SX_BODY_IMM || other->x == instr->x) && equal_instr(other, instr)) {
            *index = i;
            return true;
        }
    }
    if (body->instr_count == SX_FUSED_INSTRS_MAX) {
        return false;
    }
    *index = body->instr_count++;
    body->instr[*index] = *instr;
    return true;
}

void sx_body_trim(sx_body *body, uint32_t result)
{
    SX_ASSERT(result < body->instr_count);
    bool needed[SX_FUSED_INSTRS_MAX] = {false};
    needed[result] = true;
    for (uint32_t i = result + 1; i-- > 0;) {
        const uint32_t count = needed[i] ? operand_count(&body->instr[i]) : 0;
        for (uint32_t k = 0; k < count; k++) {
            needed[sx_body_operand(&body->instr[i], k)] = true;
        }
    }
    uint32_t renamed[SX_FUSED_INSTRS_MAX] = {0};
    uint32_t count = 0;
    for (uint32_t i = 0; i <= result; i++) {
        if (!needed[i]) {
            continue;
        }
        sx_instr instr = body->instr[i];
        uint32_t reads = operand_count(&instr);
        instr.x = reads > 0 ? renamed[instr.x] : instr.x;
        instr.y = reads > 1 ? renamed[instr.y] : 0;
        instr.z = reads > 2 ? renamed[instr.z] : 0;
        renamed[i] = count;
        body->instr[count++] = instr;
    }
    body->instr_count = count;
}

void sx_body_vary(const sx_body *body, uint32_t rank, uint32_t vary[SX_FUSED_INSTRS_MAX])
{
    SX_ASSERT(rank <= SX_RANK_MAX && body->instr_count <= SX_FUSED_INSTRS_MAX);
    for (uint32_t i = 0; i < body->instr_count; i++) {
        const sx_instr *instr = &body->instr[i];
        uint32_t set = 0;
        if (instr->kind == SX_BODY_ARG) {
            for (uint32_t d = 0; d < rank; d++) {
                set |= body->access[instr->x].stride[d].scale != 0 ? 1u << d : 0;
            }
        } else if (instr->kind == SX_BODY_INDEX) {
            set = 1u << instr->x;
        }
        const uint32_t count = operand_count(instr);
        for (uint32_t k = 0; k < count; k++) {
            set |= vary[sx_body_operand(instr, k)];
        }
        vary[i] = sx_body_combines(instr) ? set & ~sx_body_summed(body, instr) : set;
    }
}

bool sx_body_result_is_full(const sx_type *space, const sx_body *body)
{
    SX_ASSERT(body->instr_count > 0 && space->rank <= SX_RANK_MAX);
    uint32_t vary[SX_FUSED_INSTRS_MAX];
    if (body->axes == 0) {
        return true;
    }
    sx_body_vary(body, space->rank, vary);
    return (vary[body->instr_count - 1] & body->axes) != 0;
}

void sx_body_shape(const sx_type *space, const sx_body *body, sx_type *result)
{
    bool full = sx_body_result_is_full(space, body);
    sx_type type = {.dtype = space->dtype};
    for (uint32_t d = 0; d < space->rank; d++) {
        if (full || (body->axes & 1u << d) == 0) {
            type.dim[type.rank++] = space->dim[d];
        }
    }
    *result = type;
}

void sx_body_wrap(const sx_type *space, const sx_body *body, sx_attr *fused)
{
    SX_ASSERT(space->rank <= SX_RANK_MAX && body->instr_count > 0);
    memset(fused, 0, sizeof(*fused));
    fused->present = SX_A(type) | SX_A(body);
    fused->type = *space;
    fused->body = body;
}

/* ---- checking ---- */
static sx_code check_space(sx_ctx *cx, const sx_attr *attr)
{
    if ((attr->present & SX_A(body)) == 0 || attr->body == NULL) {
        return SX_FAIL(cx, SX_INPUT, "fused: no body");
    }
    if ((attr->present & SX_A(type)) == 0) {
        return SX_FAIL(cx, SX_INPUT, "fused: no iteration space");
    }
    const sx_type *space = &attr->type;
    const sx_body *body = attr->body;
    if (space->rank > SX_RANK_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "fused: space of rank %u, at most %d", space->rank,
                       SX_RANK_MAX);
    }
    if ((uint32_t)space->dtype >= SX_DTYPE_COUNT) {
        return SX_FAIL(cx, SX_INPUT, "fused: element type number %u", (uint32_t)space->dtype);
    }
    for (uint32_t d = 0; d < space->rank; d++) {
        if (space->dim[d].scale < 1 || space->dim[d].scale > SX_EXTENT_MAX) {
            return SX_FAIL(cx, SX_INPUT, "fused: extent %lld of dimension %u, from 1 to %lld",
                           (long long)space->dim[d].scale, d, (long long)SX_EXTENT_MAX);
        }
    }
    if (body->arg_count > SX_FUSED_ARGS_MAX || body->instr_count > SX_FUSED_INSTRS_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "fused: %u arguments and %u instructions, at most %d and %d",
                       body->arg_count, body->instr_count, SX_FUSED_ARGS_MAX, SX_FUSED_INSTRS_MAX);
    }
    if (body->instr_count == 0) {
        return SX_FAIL(cx, SX_INPUT, "fused: no instruction");
    }
    if ((body->inner & ~body->axes) != 0) {
        return SX_FAIL(cx, SX_INPUT, "fused: inner axes 0x%x are not all among the reduced 0x%x",
                       body->inner, body->axes);
    }
    if ((body->axes >> space->rank) != 0) {
        return SX_FAIL(cx, SX_INPUT, "fused: reduced axes 0x%x in a space of rank %u", body->axes,
                       space->rank);
    }
    return SX_OK;
}

/* Two proofs: elements - 1 - offset - sum of stride * (extent - 1) >= 0; or every digit of the access inside
 * its extent, which serves shapes with two symbols, whose number of elements cannot be written. */
bool sx_access_is_inside(const sx_type *space, const sx_access *access, const sx_type *input)
{
    sx_linear room = {.constant = -1};
    sx_dim elements;
    bool linear = sx_type_elements(input, &elements) && sx_linear_add(&room, elements, 1) &&
                  sx_linear_add(&room, access->offset, -1);
    for (uint32_t d = 0; d < space->rank && linear; d++) {
        sx_dim stride = access->stride[d];
        sx_dim extent = space->dim[d];
        bool moves = stride.scale != 0 && !(sx_dim_is_constant(extent) && extent.scale == 1);
        linear = !moves || (sx_linear_add_product(&room, stride, extent, -1) &&
                            sx_linear_add(&room, stride, 1));
    }
    sx_digits digits;
    return linear ? sx_linear_is_nonnegative(&room)
                  : sx_access_digits(space, access, input, 0, &digits);
}

static sx_code check_access(sx_ctx *cx, const sx_type *space, const sx_body *body, uint32_t a,
                            const sx_type *input)
{
    const sx_access *access = &body->access[a];
    if (access->offset.scale < 0) {
        return SX_FAIL(cx, SX_INPUT, "fused: argument %u: offset %lld is negative", a,
                       (long long)access->offset.scale);
    }
    for (uint32_t d = 0; d < SX_RANK_MAX; d++) {
        if (access->stride[d].scale < 0 || (d >= space->rank && access->stride[d].scale != 0)) {
            return SX_FAIL(cx, SX_INPUT, "fused: argument %u: stride %lld along dimension %u of %u",
                           a, (long long)access->stride[d].scale, d, space->rank);
        }
    }
    if (!sx_access_is_inside(space, access, input)) {
        return SX_FAIL(cx, SX_INPUT,
                       "fused: argument %u: the access is not shown to stay inside its elements",
                       a);
    }
    return SX_OK;
}

/* Operations of one body that were found right. The verdict depends on the operation and the element types alone. */
#define CHECKED_MAX 8u
typedef struct {
    uint64_t word[CHECKED_MAX];
    uint32_t count;
} checked;

static uint64_t scalar_word(const sx_body *body, const sx_instr *instr)
{
    uint64_t word = (uint64_t)instr->op << 32 | (uint64_t)instr->dtype;
    const uint32_t count = operand_count(instr);
    _Static_assert(SX_DTYPE_COUNT < UINT8_MAX, "four element types are a word");
    for (uint32_t k = 0; k < count; k++) {
        word |= (uint64_t)(body->instr[sx_body_operand(instr, k)].dtype + 1) << (8 * (k + 1));
    }
    return word;
}

static bool was_checked(const checked *before, uint64_t word)
{
    bool found = false;
    for (uint32_t i = 0; i < before->count && !found; i++) {
        found = before->word[i] == word;
    }
    return found;
}

/* Asks the type rules of the graph about one scalar operation. */
static sx_code check_scalar(sx_ctx *cx, const sx_body *body, uint32_t i, sx_op op, sx_attr *attr,
                            uint32_t rank)
{
    const sx_instr *instr = &body->instr[i];
    sx_type operand[3] = {{.dtype = SX_F64}, {.dtype = SX_F64}, {.dtype = SX_F64}};
    uint32_t count = operand_count(instr);
    for (uint32_t k = 0; k < count; k++) {
        operand[k].dtype = body->instr[sx_body_operand(instr, k)].dtype;
        operand[k].rank = rank;
        operand[k].dim[0] = sx_dim_of(1);
    }
    sx_type type;
    if (sx_infer_type(cx, NULL, 0, op, attr, operand, count, &type) != SX_OK) {
        char text[SX_ERROR_TEXT_MAX];
        memcpy(text, cx->error.text, sizeof(text));
        text[SX_ERROR_TEXT_MAX - 64] = '\0';
        sx_ctx_reset_error(cx);
        return SX_FAIL(cx, SX_INPUT, "fused: instruction %u: %s", i, text);
    }
    if (type.dtype != instr->dtype) {
        return SX_FAIL(cx, SX_INPUT, "fused: instruction %u: %s gives %s, not %s", i,
                       sx_op_info_of(op)->name, sx_dtype_name(type.dtype),
                       sx_dtype_name(instr->dtype));
    }
    return SX_OK;
}

/* `attr` is empty but for what was written here before. */
static sx_code check_apply(sx_ctx *cx, const sx_body *body, uint32_t i, sx_attr *attr,
                           checked *before)
{
    const sx_instr *instr = &body->instr[i];
    const uint64_t word = scalar_word(body, instr);
    if (instr->op != SX_OP_COMPARE && was_checked(before, word)) {
        return SX_OK;
    }
    if (sx_op_is_composite(instr->op)) {
        return SX_FAIL(cx, SX_INPUT, "fused: instruction %u: %s is a composite", i,
                       sx_op_info_of(instr->op)->name);
    }
    attr->present = sx_op_info_of(instr->op)->attrs;
    if (instr->op == SX_OP_COMPARE) {
        if ((uint32_t)instr->direction >= SX_DIRECTION_COUNT) {
            return SX_FAIL(cx, SX_INPUT, "fused: instruction %u: comparison number %u", i,
                           (uint32_t)instr->direction);
        }
        attr->direction = instr->direction;
    }
    attr->type.dtype = instr->op == SX_OP_CONVERT ? instr->dtype : SX_F64;
    SX_TRY(check_scalar(cx, body, i, instr->op, attr, 0));
    if (before->count < CHECKED_MAX) {
        before->word[before->count++] = word;
    }
    return SX_OK;
}

static sx_code check_imm(sx_ctx *cx, const sx_instr *instr, uint32_t i)
{
    double low = 0;
    double high = 1;
    switch (sx_dtype_class_of(instr->dtype)) {
    case SX_CLASS_FLOAT: return SX_OK;
    case SX_CLASS_INT: {
        bool is_signed = instr->dtype != SX_U8;
        int bits = (int)sx_dtype_bytes(instr->dtype) * 8;
        int shown = bits > 53 ? 53 : is_signed ? bits - 1 : bits; // doubles hold 53 bits
        low = is_signed ? -ldexp(1, shown) : 0;
        high = ldexp(1, shown) - (shown < 53 ? 1 : 0);
        break;
    }
    case SX_CLASS_BOOL: break;
    }
    if (!(instr->imm >= low && instr->imm <= high) || floor(instr->imm) < instr->imm) {
        return SX_FAIL(cx, SX_INPUT, "fused: instruction %u: %g is no value of %s", i, instr->imm,
                       sx_dtype_name(instr->dtype));
    }
    return SX_OK;
}

static sx_code check_leaf(sx_ctx *cx, const sx_attr *attr, uint32_t i, const sx_type *input)
{
    const sx_instr *instr = &attr->body->instr[i];
    if (instr->kind == SX_BODY_IMM) {
        return check_imm(cx, instr, i);
    }
    if (instr->kind == SX_BODY_INDEX) {
        if (instr->x >= attr->type.rank || instr->dtype == SX_BOOL) {
            return SX_FAIL(cx, SX_INPUT, "fused: instruction %u: index of dimension %u of %u as %s",
                           i, instr->x, attr->type.rank, sx_dtype_name(instr->dtype));
        }
        return SX_OK;
    }
    if (instr->x >= attr->body->arg_count) {
        return SX_FAIL(cx, SX_INPUT, "fused: instruction %u: argument %u of %u", i, instr->x,
                       attr->body->arg_count);
    }
    if (input[instr->x].dtype != instr->dtype) {
        return SX_FAIL(cx, SX_INPUT, "fused: instruction %u: argument %u is %s, not %s", i,
                       instr->x, sx_dtype_name(input[instr->x].dtype), sx_dtype_name(instr->dtype));
    }
    return SX_OK;
}

bool sx_dot_widens(sx_dtype from, sx_dtype to)
{
    bool floats = to == SX_F32 && (from == SX_BF16 || from == SX_F16);
    bool integers = to == SX_I32 && (from == SX_I8 || from == SX_U8 || from == SX_I16);
    return from == to || floats || integers;
}

static sx_code check_dot(sx_ctx *cx, const sx_body *body, uint32_t i)
{
    const sx_instr *dot = &body->instr[i];
    const sx_instr *operand[2] = {&body->instr[dot->x], &body->instr[dot->y]};
    bool computed = body->inner != 0; /* the x of the outer one of nested sums */
    if ((operand[0]->kind != SX_BODY_ARG && !computed) || operand[1]->kind != SX_BODY_ARG) {
        return SX_FAIL(cx, SX_INPUT, "fused: instruction %u: operands of a dot are arguments", i);
    }
    if (!sx_dot_widens(operand[0]->dtype, dot->dtype) ||
        !sx_dot_widens(operand[1]->dtype, dot->dtype)) {
        return SX_FAIL(cx, SX_INPUT, "fused: instruction %u: a dot of %s and %s gives no %s", i,
                       sx_dtype_name(operand[0]->dtype), sx_dtype_name(operand[1]->dtype),
                       sx_dtype_name(dot->dtype));
    }
    return SX_OK;
}

static sx_code check_combine(sx_ctx *cx, const sx_body *body, uint32_t i)
{
    const sx_instr *instr = &body->instr[i];
    if (body->axes == 0) {
        return SX_FAIL(cx, SX_INPUT, "fused: instruction %u: reduction over no axis", i);
    }
    if (instr->kind == SX_BODY_REDUCE) {
        if ((uint32_t)instr->reducer >= SX_REDUCER_COUNT) {
            return SX_FAIL(cx, SX_INPUT, "fused: instruction %u: reducer number %u", i,
                           (uint32_t)instr->reducer);
        }
        sx_attr attr = {.present = SX_A(dims) | SX_A(reducer), .reducer = instr->reducer};
        attr.dims.count = 1;
        return check_scalar(cx, body, i, SX_OP_REDUCE, &attr, 1);
    }
    if (instr->kind == SX_BODY_ONLINE) {
        sx_body_kind y = body->instr[instr->y].kind;
        bool real = instr->dtype == SX_F32 || instr->dtype == SX_F64;
        if (!real || (y != SX_BODY_ARG && y != SX_BODY_IMM) ||
            body->instr[instr->x].dtype != instr->dtype ||
            (y == SX_BODY_IMM ? body->instr[instr->y].dtype != instr->dtype
                              : !sx_dot_widens(body->instr[instr->y].dtype, instr->dtype))) {
            return SX_FAIL(cx, SX_INPUT,
                           "fused: instruction %u: online takes two of one type, f32 or f64, the "
                           "second an argument, of f32 also one of bf16 or f16, or a number",
                           i);
        }
        return SX_OK;
    }
    return check_dot(cx, body, i);
}

/* `scalar`: for check_apply. */
static sx_code check_instr(sx_ctx *cx, const sx_attr *attr, uint32_t i, const sx_type *input,
                           sx_attr *scalar, checked *before)
{
    const sx_body *body = attr->body;
    const sx_instr *instr = &body->instr[i];
    if ((uint32_t)instr->kind > SX_BODY_ONLINE || (uint32_t)instr->dtype >= SX_DTYPE_COUNT) {
        return SX_FAIL(cx, SX_INPUT, "fused: instruction %u: kind %u of element type %u", i,
                       (uint32_t)instr->kind, (uint32_t)instr->dtype);
    }
    if (instr->kind == SX_BODY_APPLY &&
        ((uint32_t)instr->op >= SX_OP_COUNT || !sx_op_is_elementwise(instr->op))) {
        return SX_FAIL(cx, SX_INPUT,
                       "fused: instruction %u: operation number %u applies to no scalar", i,
                       (uint32_t)instr->op);
    }
    const uint32_t count = operand_count(instr);
    for (uint32_t k = 0; k < count; k++) {
        if (sx_body_operand(instr, k) >= i) {
            return SX_FAIL(cx, SX_INPUT, "fused: instruction %u: operand %u is instruction %u", i,
                           k, sx_body_operand(instr, k));
        }
    }
    switch (instr->kind) {
    case SX_BODY_ARG:
    case SX_BODY_IMM:
    case SX_BODY_INDEX: return check_leaf(cx, attr, i, input);
    case SX_BODY_APPLY: return check_apply(cx, body, i, scalar, before);
    case SX_BODY_REDUCE:
    case SX_BODY_DOT:
    case SX_BODY_ONLINE: return check_combine(cx, body, i);
    }
    return SX_OK;
}

/* The rules about a program with ONLINE instructions: one x, made before any of them; a DOT inside x alone. */
static sx_code check_online(sx_ctx *cx, const sx_type *space, const sx_body *body)
{
    uint32_t vary[SX_FUSED_INSTRS_MAX];
    bool after[SX_FUSED_INSTRS_MAX] = {false}; /* depends on an ONLINE or REDUCE */
    uint32_t x = UINT32_MAX;
    uint32_t dots = 0, values = 0;
    sx_body_vary(body, space->rank, vary);
    for (uint32_t i = 0; i < body->instr_count; i++) {
        const sx_instr *instr = &body->instr[i];
        dots += instr->kind == SX_BODY_DOT ? 1 : 0;
        for (uint32_t k = 0; k < operand_count(instr); k++) {
            after[i] = after[i] || after[sx_body_operand(instr, k)];
        }
        bool is_max = instr->kind == SX_BODY_REDUCE && instr->reducer == SX_MAX;
        bool other = (instr->kind == SX_BODY_REDUCE && !is_max) ||
                     (instr->kind == SX_BODY_DOT && body->instr[instr->x].kind != SX_BODY_ARG);
        if (instr->kind == SX_BODY_ONLINE || is_max) {
            other = after[i] || (x != UINT32_MAX && x != instr->x);
            x = instr->x;
            after[i] = true;
            values += instr->kind == SX_BODY_ONLINE && body->instr[instr->y].kind == SX_BODY_ARG;
            other = other || (vary[instr->x] & body->inner) != 0 ||
                    (instr->kind == SX_BODY_ONLINE && (vary[instr->y] & body->inner) != 0);
        }
        if (other) {
            return SX_FAIL(cx, SX_INPUT,
                           "fused: instruction %u: beside online stand only online and maximum of "
                           "the same x",
                           i);
        }
    }
    bool needed[SX_FUSED_INSTRS_MAX] = {false}; /* by the result, beside the reductions */
    needed[body->instr_count - 1] = true;
    for (uint32_t i = body->instr_count; i-- > 0;) {
        const sx_instr *instr = &body->instr[i];
        bool opens = needed[i] && (!sx_body_combines(instr) || instr->kind == SX_BODY_DOT);
        for (uint32_t k = 0; opens && k < operand_count(instr); k++) {
            needed[sx_body_operand(instr, k)] = true;
        }
        if (needed[i] && instr->kind == SX_BODY_DOT) {
            return SX_FAIL(cx, SX_INPUT,
                           "fused: instruction %u: a dot beside online is used by "
                           "its scores alone",
                           i);
        }
    }
    if (dots > 1 || values > 1 || (dots == 1) != (body->inner != 0) || body->inner == body->axes) {
        return SX_FAIL(cx, SX_INPUT,
                       "fused: online with %u dots over inner axes 0x%x and %u arguments, at most "
                       "one of each",
                       dots, body->inner, values);
    }
    if ((vary[body->instr_count - 1] & body->axes) != 0) {
        return SX_FAIL(cx, SX_INPUT, "fused: the result depends on a reduced axis of online");
    }
    return SX_OK;
}

/* The rules about nested sums: one or two dots over `inner`, one over the other axes of what is made of them, and no
 * other way from an inner dot to the result. */
static sx_code check_nested(sx_ctx *cx, const sx_type *space, const sx_body *body)
{
    uint32_t vary[SX_FUSED_INSTRS_MAX];
    bool inside[SX_FUSED_INSTRS_MAX] = {false}; /* depends on an inner dot, not through the outer */
    uint32_t inner = 0, outer = 0;
    sx_body_vary(body, space->rank, vary);
    for (uint32_t i = 0; i < body->instr_count; i++) {
        const sx_instr *instr = &body->instr[i];
        bool is_inner = instr->kind == SX_BODY_DOT && body->instr[instr->x].kind == SX_BODY_ARG;
        for (uint32_t k = 0; k < operand_count(instr); k++) {
            uint32_t operand = sx_body_operand(instr, k);
            inside[i] = inside[i] || inside[operand];
            if (!is_inner && (vary[operand] & body->inner) != 0) {
                return SX_FAIL(cx, SX_INPUT,
                               "fused: instruction %u: only dots of two arguments read what varies "
                               "along the inner axes 0x%x",
                               i, body->inner);
            }
        }
        if (instr->kind == SX_BODY_REDUCE ||
            (instr->kind == SX_BODY_DOT && !is_inner && !inside[i])) {
            return SX_FAIL(cx, SX_INPUT,
                           "fused: instruction %u: beside nested dots stand only dots of two "
                           "arguments and one of what is made of them",
                           i);
        }
        inner += is_inner ? 1 : 0;
        outer += instr->kind == SX_BODY_DOT && !is_inner ? 1 : 0;
        inside[i] = is_inner || (inside[i] && instr->kind != SX_BODY_DOT);
    }
    if (inner < 1 || inner > SX_NESTED_DOTS_MAX || outer != 1 || body->inner == body->axes) {
        return SX_FAIL(
            cx, SX_INPUT,
            "fused: %u dots over inner axes 0x%x of 0x%x and %u over the others, 1 to %d "
            "and one",
            inner, body->inner, body->axes, outer, SX_NESTED_DOTS_MAX);
    }
    if (inside[body->instr_count - 1] || (vary[body->instr_count - 1] & body->axes) != 0) {
        return SX_FAIL(cx, SX_INPUT,
                       "fused: the result depends on an inner dot or a reduced axis outside of the "
                       "outer dot");
    }
    return SX_OK;
}

/* The rules about the program as a whole: every instruction used, one dot and then no other reduction, axes
 * only with one. */
static sx_code check_program(sx_ctx *cx, const sx_type *space, const sx_body *body)
{
    bool used[SX_FUSED_INSTRS_MAX] = {false};
    uint32_t dots = 0;
    uint32_t reduces = 0;
    for (uint32_t i = 0; i < body->instr_count; i++) {
        dots += body->instr[i].kind == SX_BODY_DOT;
        reduces += body->instr[i].kind == SX_BODY_REDUCE;
        const uint32_t count = operand_count(&body->instr[i]);
        for (uint32_t k = 0; k < count; k++) {
            used[sx_body_operand(&body->instr[i], k)] = true;
        }
    }
    for (uint32_t i = 0; i + 1 < body->instr_count; i++) {
        if (!used[i]) {
            return SX_FAIL(cx, SX_INPUT, "fused: instruction %u is used by no later one", i);
        }
    }
    if (sx_body_kernel_kind(body) == SX_KERNEL_ONLINE) {
        return check_online(cx, space, body);
    }
    if (sx_body_kernel_kind(body) == SX_KERNEL_NESTED) {
        return check_nested(cx, space, body);
    }
    if (body->inner != 0) {
        return SX_FAIL(cx, SX_INPUT, "fused: inner axes 0x%x without a dot", body->inner);
    }
    if (dots > 1 || (dots == 1 && reduces > 0)) {
        return SX_FAIL(cx, SX_INPUT, "fused: %u dots and %u reductions, at most one dot alone",
                       dots, reduces);
    }
    if (body->axes != 0 && dots + reduces == 0) {
        return SX_FAIL(cx, SX_INPUT, "fused: reduced axes 0x%x and no reduction", body->axes);
    }
    if (dots == 1 && sx_body_result_is_full(space, body)) {
        return SX_FAIL(cx, SX_INPUT,
                       "fused: the result depends on a contracted axis outside of the dot");
    }
    return SX_OK;
}

sx_code sx_fused_infer(sx_ctx *cx, const sx_attr *attr, const sx_type *input, uint32_t input_count,
                       sx_type *result)
{
    SX_TRY(check_space(cx, attr));
    const sx_body *body = attr->body;
    if (body->arg_count != input_count) {
        return SX_FAIL(cx, SX_INPUT, "fused: %u inputs for %u arguments", input_count,
                       body->arg_count);
    }
    for (uint32_t a = 0; a < input_count; a++) {
        SX_TRY(check_access(cx, &attr->type, body, a, &input[a]));
    }
    sx_attr scalar = {0};
    checked before;
    before.count = 0;
    for (uint32_t i = 0; i < body->instr_count; i++) {
        SX_TRY(check_instr(cx, attr, i, input, &scalar, &before));
    }
    SX_TRY(check_program(cx, &attr->type, body));
    sx_dtype last = body->instr[body->instr_count - 1].dtype;
    if (last != attr->type.dtype) {
        return SX_FAIL(cx, SX_INPUT, "fused: the result is %s, the space says %s",
                       sx_dtype_name(last), sx_dtype_name(attr->type.dtype));
    }
    sx_type type;
    sx_body_shape(&attr->type, body, &type);
    sx_dim stride[SX_RANK_MAX];
    if (!sx_type_strides(&type, stride)) {
        return SX_FAIL(cx, SX_UNIMPLEMENTED,
                       "fused: the result has no strides that can be written");
    }
    *result = type;
    return SX_OK;
}
