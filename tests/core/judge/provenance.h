/* provenance.h - runs a kernel on tags instead of numbers: what each place of its result was made of.
 *
 * A lane has a tag, a hash of the expression that it holds: the element of the input (buffer, byte), or the
 * operation on the tags of its operands, in order. So equal tags of two programs are one expression over the same
 * elements, every contribution as often and in the same order, and equal bits for all inputs (up to a collision
 * of 64-bit hashes; which NaN an operation gives is not specified, so the factors of a multiply-add may be
 * exchanged). Integers, masks and indices that do not come from floats are known and computed. It shares nothing
 * with core/judge or core/loop/eval.c. */
#ifndef SX_TESTS_CORE_JUDGE_PROVENANCE_H
#define SX_TESTS_CORE_JUDGE_PROVENANCE_H
#include <stdlib.h>

#include "core/loop/loop.h"
#include "tests/lib/test.h"

typedef struct {
    uint64_t tag;
    bool known;
    uint32_t bits; /* if known */
} tagged;
typedef struct {
    tagged lane[SX_LOOP_LANES_MAX];
} tagged_lanes;
typedef struct {
    tagged value; /* of the element that begins here */
    uint8_t width;
} tagged_byte;

typedef struct {
    const sx_kernel *kernel;
    const sx_part *part;
    void *const *input; /* bytes of the inputs, for indices */
    tagged_byte *memory[SX_LOOP_BUFFERS_MAX];
    tagged_lanes *vector, *mask;
    int64_t *integer;
    int64_t variable[SX_LOOP_VARS_MAX];
    /* An index was read where no input lies: nobody knows which element was meant. */
    bool own_index;
} provenance;

static uint64_t tag_mix(uint64_t a, uint64_t b)
{
    uint64_t x = (a ^ (b + UINT64_C(0x9E3779B97F4A7C15) + (a << 6) + (a >> 2))) *
                 UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

static tagged tag_known(uint32_t bits)
{
    return (tagged){.tag = tag_mix(1, bits), .known = true, .bits = bits};
}

/* Integer and mask operations on known values. */
static bool tag_compute(const sx_item *item, uint32_t a, uint32_t b, uint32_t *r)
{
    switch ((int)item->op) {
    case SX_LOP_AND:
    case SX_LOP_MAND: *r = a & b; return true;
    case SX_LOP_OR:
    case SX_LOP_MOR: *r = a | b; return true;
    case SX_LOP_XOR:
    case SX_LOP_MXOR: *r = a ^ b; return true;
    case SX_LOP_MNOT: *r = a ^ 1; return true;
    case SX_LOP_IADD: *r = a + b; return true;
    case SX_LOP_ISUB: *r = a - b; return true;
    case SX_LOP_SHL: *r = a << item->imm; return true;
    case SX_LOP_SHR: *r = a >> item->imm; return true;
    case SX_LOP_ICMP: *r = item->imm == SX_EQ ? a == b : (int32_t)a > (int32_t)b; return true;
    default: return false;
    }
}

static tagged tag_operation(const sx_item *item, const tagged x[3], uint32_t count)
{
    uint32_t bits = 0;
    bool known = x[0].known && (count < 2 || x[1].known) && count < 3;
    if (item->op == SX_LOP_MOV) {
        return x[0];
    }
    if (item->op == SX_LOP_BLEND && x[0].known) {
        return x[0].bits != 0 ? x[1] : x[2];
    }
    if (known && tag_compute(item, x[0].bits, x[1].bits, &bits)) {
        return tag_known(bits);
    }
    uint64_t tag = tag_mix(2 + (uint64_t)item->op, item->imm);
    uint64_t first = x[0].tag;
    uint64_t second = count > 1 ? x[1].tag : 0;
    if ((item->op == SX_LOP_FMA || item->op == SX_LOP_FNMA) && first > second) {
        uint64_t other = first;
        first = second;
        second = other;
    }
    tag = tag_mix(tag_mix(tag, first), second);
    return (tagged){.tag = count > 2 ? tag_mix(tag, x[2].tag) : tag};
}

static int64_t tag_address(const provenance *p, const sx_addr *a)
{
    int64_t at = a->offset + (a->index_reg == SX_NO_REG ? 0 : p->integer[a->index_reg]);
    for (uint32_t v = 0; v < SX_LOOP_VARS_MAX; v++) {
        at += a->coef[v] * p->variable[v];
    }
    return at;
}

static tagged tag_load(const provenance *p, uint32_t buffer, int64_t at, sx_mem mem, uint32_t width)
{
    if (p->kernel->buffer[buffer].role == SX_BUFFER_IN) {
        return (tagged){.tag = tag_mix(tag_mix(100 + (uint64_t)mem, buffer), (uint64_t)at)};
    }
    const tagged_byte *byte = &p->memory[buffer][at];
    if (byte->width == width && mem == SX_MEM_LANE) {
        return byte->value;
    }
    uint64_t tag =
        tag_mix(200 + (uint64_t)mem, width); /* bytes of other elements, or never written */
    for (uint32_t k = 0; k < width; k++) {
        tag = tag_mix(tag, tag_mix(byte[k].value.tag, byte[k].width));
    }
    return (tagged){.tag = tag};
}

static void tag_store(provenance *p, uint32_t buffer, int64_t at, sx_mem mem, uint32_t width,
                      tagged value)
{
    tagged_byte *byte = &p->memory[buffer][at];
    for (uint32_t k = 0; k < width; k++) {
        uint64_t tag = tag_mix(tag_mix(value.tag, 300 + (uint64_t)mem), k);
        byte[k] = (tagged_byte){.value = {.tag = tag}, .width = 0};
    }
    if (mem == SX_MEM_LANE) {
        byte[0] = (tagged_byte){.value = value, .width = (uint8_t)width};
    }
}

static void tag_memory(provenance *p, const sx_item *item)
{
    const sx_addr *a = &p->part->addr[item->addr];
    int64_t at = tag_address(p, a);
    uint32_t width = sx_mem_bytes(item->mem, 4);
    tagged_lanes out;
    for (uint32_t i = 0; i < SX_LOOP_LANES_MAX; i++) {
        out.lane[i] = tag_known(0);
    }
    switch ((int)item->op) {
    case SX_LOP_LOAD:
    case SX_LOP_LOADS:
        for (uint32_t i = 0; i < item->imm; i++) {
            int64_t step = item->op == SX_LOP_LOAD ? width : item->imm2;
            out.lane[i] = tag_load(p, a->buffer, at + i * step, item->mem, width);
        }
        p->vector[item->dst] = out;
        break;
    case SX_LOP_LOADB:
        for (uint32_t i = 0; i < SX_LOOP_LANES_MAX; i++) {
            out.lane[i] = tag_load(p, a->buffer, at, item->mem, width);
        }
        p->vector[item->dst] = out;
        break;
    case SX_LOP_STORE:
        for (uint32_t i = 0; i < item->imm; i++) {
            tag_store(p, a->buffer, at + (int64_t)i * width, item->mem, width,
                      p->vector[item->src[0]].lane[i]);
        }
        break;
    case SX_LOP_STORES:
        for (uint32_t i = 0; i < item->imm; i++) {
            tag_store(p, a->buffer, at + (int64_t)i * item->imm2, item->mem, width,
                      p->vector[item->src[0]].lane[i]);
        }
        break;
    case SX_LOP_SLOAD32: {
        int32_t narrow;
        p->own_index = p->own_index || p->kernel->buffer[a->buffer].role != SX_BUFFER_IN;
        memcpy(&narrow, (const uint8_t *)p->input[a->buffer] + at, 4);
        p->integer[item->dst] = narrow;
        break;
    }
    case SX_LOP_SLOAD64:
        p->own_index = p->own_index || p->kernel->buffer[a->buffer].role != SX_BUFFER_IN;
        memcpy(&p->integer[item->dst], (const uint8_t *)p->input[a->buffer] + at, 8);
        break;
    default: break;
    }
}

static bool tag_integer(provenance *p, const sx_item *item)
{
    int64_t s = item->op >= SX_LOP_SWRAP && item->op <= SX_LOP_S2V ? p->integer[item->src[0]] : 0;
    switch ((int)item->op) {
    case SX_LOP_SVAR: p->integer[item->dst] = p->variable[item->imm]; return true;
    case SX_LOP_SWRAP: p->integer[item->dst] = s < 0 ? s + item->imm2 : s; return true;
    case SX_LOP_SCLAMP:
        p->integer[item->dst] = s < 0 ? 0 : s >= item->imm2 ? item->imm2 - 1 : s;
        return true;
    case SX_LOP_SADD: p->integer[item->dst] = s + p->integer[item->src[1]]; return true;
    case SX_LOP_SOFF: p->integer[item->dst] = s + item->imm2; return true;
    case SX_LOP_SMUL: p->integer[item->dst] = s * item->imm2; return true;
    case SX_LOP_S2V:
    case SX_LOP_SET:
    case SX_LOP_IOTA:
        for (uint32_t i = 0; i < SX_LOOP_LANES_MAX; i++) {
            uint32_t bits = item->op == SX_LOP_S2V   ? (uint32_t)(uint64_t)s
                            : item->op == SX_LOP_SET ? item->imm
                                                     : item->imm + i;
            p->vector[item->dst].lane[i] = tag_known(bits);
        }
        return true;
    default: return false;
    }
}

static void tag_item(provenance *p, const sx_item *item)
{
    const sx_lop_info *info = sx_lop_info_of(item->op);
    if (info->operands[0] == 'A') {
        tag_memory(p, item);
        return;
    }
    if (tag_integer(p, item)) {
        return;
    }
    const tagged_lanes *operand[3] = {NULL, NULL, NULL};
    uint32_t count = 0;
    for (const char *c = info->operands; *c != '\0'; c++) {
        if (*c == 'v' || *c == 'm') {
            operand[count] = *c == 'v' ? &p->vector[item->src[count]] : &p->mask[item->src[count]];
            count++;
        }
    }
    tagged_lanes out = {.lane = {{0}}};
    for (uint32_t i = 0; i < p->kernel->lanes; i++) {
        tagged x[3] = {{0}};
        uint32_t from = item->op == SX_LOP_SWAP ? i ^ item->imm : item->op == SX_LOP_BCAST0 ? 0 : i;
        for (uint32_t k = 0; k < count; k++) {
            x[k] = operand[k]->lane[from];
        }
        bool moves = item->op == SX_LOP_SWAP || item->op == SX_LOP_BCAST0;
        out.lane[i] = moves ? x[0] : tag_operation(item, x, count);
    }
    *(info->result == 'm' ? &p->mask[item->dst] : &p->vector[item->dst]) = out;
}

/* The items up to the END of the loop that they stand in; returns behind it. */
static uint32_t tag_items(provenance *p, uint32_t at)
{
    const sx_part *part = p->part;
    while (at < part->item_count && part->item[at].kind != SX_ITEM_END) {
        const sx_item *item = &part->item[at];
        if (item->kind == SX_ITEM_OP) {
            tag_item(p, item);
            at++;
            continue;
        }
        uint32_t behind = at;
        for (int64_t i = 0; i < item->trip; i++) {
            p->variable[item->dst] = i;
            behind = tag_items(p, at + 1);
        }
        p->variable[item->dst] = 0;
        at = behind;
    }
    return at + 1;
}

static void tag_workspace(provenance *p)
{
    for (uint32_t b = 0; b < p->kernel->buffer_count; b++) {
        if (p->kernel->buffer[b].role == SX_BUFFER_WORKSPACE) {
            memset(p->memory[b], 0, (size_t)p->kernel->buffer[b].size * sizeof(tagged_byte));
        }
    }
}

static void tag_part(provenance *p, const sx_part *part)
{
    p->part = part;
    p->vector = calloc(part->vector_count + 1, sizeof(tagged_lanes));
    p->mask = calloc(part->mask_count + 1, sizeof(tagged_lanes));
    p->integer = calloc(part->scalar_count + 1, sizeof(int64_t));
    ck_assert(p->vector != NULL && p->mask != NULL && p->integer != NULL);
    memset(p->variable, 0, sizeof(p->variable));
    int64_t points = part->grid[0] * part->grid[1] * part->grid[2];
    for (int64_t g = 0; g < points; g++) {
        p->variable[0] = g % part->grid[0];
        p->variable[1] = g / part->grid[0] % part->grid[1];
        p->variable[2] = g / part->grid[0] / part->grid[1];
        tag_workspace(p);
        (void)tag_items(p, 0);
    }
    free(p->vector);
    free(p->mask);
    free(p->integer);
}

/* One hash for each byte of the result; the caller frees it. The kernel has passed sx_kernel_check. */
SX_UNUSED static uint64_t *provenance_of(const sx_kernel *kernel, void *const *input, int64_t *size)
{
    provenance p = {.kernel = kernel, .input = input};
    uint64_t *made = NULL;
    ck_assert_uint_eq(kernel->lane_bytes, 4);
    for (uint32_t b = 0; b < kernel->buffer_count; b++) {
        p.memory[b] = calloc((size_t)kernel->buffer[b].size + 1, sizeof(tagged_byte));
        ck_assert_ptr_nonnull(p.memory[b]);
    }
    for (uint32_t k = 0; k < kernel->part_count; k++) {
        tag_part(&p, &kernel->part[k]);
    }
    for (uint32_t b = 0; b < kernel->buffer_count; b++) {
        if (kernel->buffer[b].role == SX_BUFFER_OUT) {
            *size = kernel->buffer[b].size;
            made = calloc((size_t)*size + 1, sizeof(uint64_t));
            ck_assert_ptr_nonnull(made);
            for (int64_t i = 0; i < *size; i++) {
                made[i] = tag_mix(p.memory[b][i].value.tag, p.memory[b][i].width);
                made[i] = p.own_index ? tag_mix(made[i], 1) : made[i];
            }
        }
        free(p.memory[b]);
    }
    ck_assert_ptr_nonnull(made);
    return made;
}
#endif
