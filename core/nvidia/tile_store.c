/* tile_store.c - results that the copy engine stores: the threads of four warps write what they hold of 64 rows into a
 * slot of shared memory, and one of them has the engine store it, which cuts it at the edges of the result.
 *
 * Words of two elements of 16 bits go by stmatrix, four at once: the lanes of a warp hold two matrices of 8 x 8 one
 * above the other, and two of those side by side. Others are vectors of a thread. */
#include "core/nvidia/tile_inside.h"

#define WARPGROUP 128
#define THREAD_BITS 7 /* of a thread within its four warps */
#define MATRICES 4    /* of an stmatrix */
/* Named barriers of the groups; number 0 is that of all threads. */
#define FIRST_BARRIER 1

struct sx_nvidia_store {
    sx_ptx_arg map;                    /* generic address of the map of the result */
    sx_ptx_arg slots;                  /* of the thread's group */
    sx_ptx_arg first[2];               /* the row and column of the group's first element */
    sx_ptx_arg speaks;                 /* the thread that starts the copies */
    sx_ptx_arg is_group[SX_ROLES_MAX]; /* whether it is one of this group; of the only one NONE */
    uint32_t groups;
    bool by_matrix;
    uint32_t mask; /* bits of an address that threads set */
    uint32_t key[SX_NVIDIA_KEYS_MAX];
    sx_ptx_arg pointer[SX_NVIDIA_KEYS_MAX];
    uint32_t key_count;
    sx_ptx_arg word[MATRICES]; /* that wait for their stmatrix */
    uint32_t word_count;
    uint32_t unit; /* slots that were stored */
};

static const sx_tile_store *plan_of(const sx_nvidia_block *k)
{
    return &k->tile->store;
}

static uint32_t element_bytes(const sx_nvidia_block *k)
{
    return sx_dtype_bytes(plan_of(k)->view.element);
}

/* ---- places ---- */
/* Row and byte of a slot to which a bit of the thread's number adds. Lanes of an stmatrix address rows: 8 of each of
 * its matrices. */
static uint32_t thread_place(const sx_nvidia_block *k, uint32_t bit)
{
    const sx_layout *held = &k->tile->held;
    uint32_t at = held->column[sx_layout_first(held, SX_HOME_LANE) + bit];
    uint32_t row = sx_at_row(at), byte = sx_at_column(at) * element_bytes(k);
    if (k->store->by_matrix && bit < 5) {
        row = bit < 4 ? 1U << bit : 0;
        byte = bit < 4 ? 0 : 16;
    }
    return sx_slot_address(&plan_of(k)->slot, 0, row, byte);
}

static sx_ptx_arg plus_of_thread(sx_nvidia_block *k, sx_ptx_arg base, const uint32_t *column)
{
    uint32_t bits = THREAD_BITS + k->tile->held.bits[SX_HOME_WARP] - 2U;
    sx_ptx_arg d = sx_ptx_register(&k->l.b, SX_PTX_B32);
    SX_PTX_PUT(&k->l.b, ADD, SX_PTX_M(SX_PTX_TYPE_U32), d, base,
               sx_nvidia_of_thread(k, column, bits, false));
    return d;
}

/* Where the group's rows, columns and slots begin. */
static void find_group(sx_nvidia_block *k)
{
    sx_ptx_builder *b = &k->l.b;
    struct sx_nvidia_store *s = k->store;
    const sx_layout *held = &k->tile->held;
    uint32_t first = sx_layout_first(held, SX_HOME_WARP) + 2;
    uint32_t side[2][SX_LAYOUT_BITS_MAX] = {{0}}, slot[SX_LAYOUT_BITS_MAX] = {0};
    for (uint32_t i = 0; i + 2 < held->bits[SX_HOME_WARP]; i++) {
        uint32_t at = held->column[first + i];
        side[SX_SIDE_ROW][THREAD_BITS + i] = sx_at_row(at);
        side[SX_SIDE_COLUMN][THREAD_BITS + i] = sx_at_column(at);
        slot[THREAD_BITS + i] = (plan_of(k)->slot.bytes * plan_of(k)->depth) << i;
    }
    sx_ptx_arg base = sx_ptx_register(b, SX_PTX_B32);
    SX_PTX_PUT(b, ADD, SX_PTX_M(SX_PTX_TYPE_U32), base, k->memory, sx_ptx_imm(plan_of(k)->offset));
    s->slots = plus_of_thread(k, base, slot);
    s->first[SX_SIDE_ROW] = plus_of_thread(k, k->first[0], side[SX_SIDE_ROW]);
    s->first[SX_SIDE_COLUMN] = plus_of_thread(k, k->first[1], side[SX_SIDE_COLUMN]);
    for (uint32_t g = 0; g < s->groups && s->groups > 1; g++) {
        sx_ptx_arg number = sx_ptx_register(b, SX_PTX_B32);
        s->is_group[g] = sx_ptx_register(b, SX_PTX_PRED);
        SX_PTX_PUT(b, SHR, SX_PTX_M(SX_PTX_TYPE_U32), number, k->thread, sx_ptx_imm(THREAD_BITS));
        SX_PTX_PUT(b, SETP, SX_PTX_M(SX_PTX_COMPARE_EQ, SX_PTX_TYPE_U32), s->is_group[g], number,
                   sx_ptx_imm(g));
    }
}

/* Where in a slot a register of the sums lies, without what threads add. */
static uint32_t register_place(const sx_nvidia_block *k, uint32_t element)
{
    uint32_t at = sx_layout_apply(&k->tile->held, &(sx_place){{element}});
    const sx_slot *slot = &plan_of(k)->slot;
    uint32_t byte = sx_at_column(at) * element_bytes(k);
    return sx_slot_address(slot, 0, sx_at_row(at) % slot->rows, byte % sx_slot_row_bytes(slot));
}

/* A pointer for each value of the bits that both threads and registers set. */
static void make_pointers(sx_nvidia_block *k)
{
    sx_ptx_builder *b = &k->l.b;
    struct sx_nvidia_store *s = k->store;
    uint32_t column[SX_LAYOUT_BITS_MAX];
    for (uint32_t i = 0; i < THREAD_BITS; i++) {
        column[i] = thread_place(k, i);
        s->mask |= column[i];
    }
    sx_ptx_arg own = sx_nvidia_of_thread(k, column, THREAD_BITS, true);
    uint32_t count = sx_layout_count(&k->tile->held, SX_HOME_REGISTER);
    for (uint32_t r = 0; r < count; r++) {
        uint32_t key = register_place(k, r) & s->mask, i = 0;
        while (i < s->key_count && s->key[i] != key) {
            i++;
        }
        if (i < s->key_count) {
            continue;
        }
        SX_ASSERT(s->key_count < SX_NVIDIA_KEYS_MAX);
        s->key[i] = key;
        s->pointer[i] = sx_ptx_register(b, SX_PTX_B32);
        s->key_count++;
        SX_PTX_PUT(b, XOR, SX_PTX_M(SX_PTX_TYPE_B32), s->pointer[i], own, sx_ptx_imm(key));
        SX_PTX_PUT(b, ADD, SX_PTX_M(SX_PTX_TYPE_U32), s->pointer[i], s->pointer[i], s->slots);
    }
}

sx_code sx_nvidia_begin_store(sx_nvidia_block *k)
{
    sx_ptx_builder *b = &k->l.b;
    struct sx_nvidia_store *s = SX_NEW(k->l.cx, struct sx_nvidia_store);
    if (s == NULL) {
        return k->l.cx->error.code;
    }
    k->store = s;
    s->groups = sx_tile_groups(k->tile);
    if (k->l.group == NULL || k->l.group->width != 2) {
        return SX_FAIL(k->l.cx, SX_UNIMPLEMENTED,
                       "kernel %s: a copy engine that stores elements one by one",
                       k->l.kernel->name);
    }
    k->l.group->keeps = true;
    s->by_matrix = element_bytes(k) == 2 && sx_slot_row_bytes(&plan_of(k)->slot) >= 32;
    sx_ptx_arg parameter = sx_ptx_register(b, SX_PTX_B64);
    s->map = sx_ptx_register(b, SX_PTX_B64);
    SX_PTX_PUT(b, MOV, SX_PTX_M(SX_PTX_TYPE_B64), parameter, k->map[2]);
    SX_PTX_PUT(b, CVTA, SX_PTX_M(SX_PTX_SPACE_PARAM, SX_PTX_TYPE_U64), s->map, parameter);
    s->speaks = sx_nvidia_find_speaker(k);
    find_group(k);
    make_pointers(k);
    return b->code;
}

/* ---- slots ---- */
/* All threads of the group have come here. */
static void put_barrier(sx_nvidia_block *k)
{
    sx_ptx_builder *b = &k->l.b;
    for (uint32_t g = 0; g < k->store->groups; g++) {
        if (k->store->groups > 1) {
            sx_ptx_guard(b, k->store->is_group[g]);
        }
        SX_PTX_PUT(b, BAR_SYNC, SX_PTX_M(0), sx_ptx_imm(FIRST_BARRIER + g), sx_ptx_imm(WARPGROUP));
    }
}

/* No more than the last `pending` copies of the group are to be read. */
static void wait_for_engine(sx_nvidia_block *k, uint32_t pending)
{
    sx_ptx_guard(&k->l.b, k->store->speaks);
    SX_PTX_PUT(&k->l.b, CP_BULK_WAIT, SX_PTX_M(SX_PTX_READ_READ), sx_ptx_imm(pending));
}

static sx_ptx_arg place_of(const sx_nvidia_block *k, uint32_t element)
{
    const struct sx_nvidia_store *s = k->store;
    uint32_t place = register_place(k, element), i = 0;
    uint32_t slot = s->unit % plan_of(k)->depth * plan_of(k)->slot.bytes;
    while (i < s->key_count && s->key[i] != (place & s->mask)) {
        i++;
    }
    SX_ASSERT(i < s->key_count);
    return sx_ptx_at(s->pointer[i], slot + (place & ~s->mask));
}

/* Puts words of the thread that begin with this register into the slot. */
static void put_words(sx_nvidia_block *k, uint32_t element)
{
    static const uint16_t vectors[] = {0, 0, SX_PTX_VECTOR_V2, 0, SX_PTX_VECTOR_V4};
    sx_ptx_builder *b = &k->l.b;
    const sx_nvidia_group *group = k->l.group;
    struct sx_nvidia_store *s = k->store;
    if (!s->by_matrix) {
        uint32_t count = group->kept_count;
        sx_ptx_arg all = count == 1 ? group->kept[0] : sx_ptx_vector(b, group->kept, count);
        SX_ASSERT(count <= 4);
        SX_PTX_PUT(b, ST, SX_PTX_M(SX_PTX_SPACE_SHARED, vectors[count], SX_PTX_TYPE_B32),
                   place_of(k, element), all);
        return;
    }
    SX_ASSERT(group->kept_count == 1);
    s->word[s->word_count++] = group->kept[0];
    if (s->word_count == MATRICES) {
        uint32_t begin = element + group->width - MATRICES * group->width;
        SX_PTX_PUT(b, STMATRIX, SX_PTX_M(SX_PTX_COUNT_X4, SX_PTX_SPACE_SHARED), place_of(k, begin),
                   sx_ptx_vector(b, s->word, MATRICES));
        s->word_count = 0;
    }
}

/* The slot that begins with this register is full: the engine stores it. */
static void store_slot(sx_nvidia_block *k, uint32_t element)
{
    static const uint16_t dims[] = {
        0, 0, SX_PTX_DIM_D2, SX_PTX_DIM_D3, SX_PTX_DIM_D4, SX_PTX_DIM_D5};
    sx_ptx_builder *b = &k->l.b;
    struct sx_nvidia_store *s = k->store;
    const sx_tile_boxes *boxes = &plan_of(k)->boxes;
    uint32_t at = sx_layout_apply(&k->tile->held, &(sx_place){{element}});
    uint32_t slot = s->unit % plan_of(k)->depth * plan_of(k)->slot.bytes;
    sx_ptx_arg index[SX_TENSOR_RANK_MAX];
    sx_ptx_put(b, SX_PTX_OP_FENCE_PROXY, SX_PTX_M(SX_PTX_SPACE_SHARED_CTA), NULL, 0);
    put_barrier(k);
    for (uint32_t side = 0; side < 2; side++) { /* columns are dimension 0 */
        uint32_t more = side == SX_SIDE_ROW ? sx_at_row(at) : sx_at_column(at);
        index[1 - side] = s->first[side];
        if (more > 0) {
            index[1 - side] = sx_ptx_register(b, SX_PTX_B32);
            SX_PTX_PUT(b, ADD, SX_PTX_M(SX_PTX_TYPE_U32), index[1 - side], s->first[side],
                       sx_ptx_imm(more));
        }
    }
    for (uint32_t d = 2; d < boxes->map.rank; d++) {
        index[d] = k->batch[boxes->batch[d - 2]];
    }
    sx_ptx_guard(b, s->speaks);
    SX_PTX_PUT(b, CP_TENSOR_STORE, SX_PTX_M(dims[boxes->map.rank]), sx_ptx_at(s->map, 0),
               sx_ptx_coordinates(b, index, boxes->map.rank), sx_ptx_at(s->slots, slot));
    sx_ptx_guard(b, s->speaks);
    sx_ptx_put(b, SX_PTX_OP_CP_BULK_COMMIT, SX_PTX_M(0), NULL, 0);
    s->unit++;
}

/* How many copies of the group may be under way when it comes to the next slot: those behind the last one from this
 * slot. Where blocks walk that may have been one of the point before. */
static uint32_t stores_behind(const sx_nvidia_block *k, uint32_t each)
{
    uint32_t depth = plan_of(k)->depth, unit = k->store->unit;
    uint32_t units = sx_layout_count(&k->tile->held, SX_HOME_REGISTER) / each;
    if (unit >= depth) {
        return depth - 1;
    }
    SX_ASSERT(unit < units);
    return unit + (units - 1 - unit) % depth;
}

void sx_nvidia_put_store(sx_nvidia_block *k, uint32_t element)
{
    const sx_slot *slot = &plan_of(k)->slot;
    uint32_t each = slot->rows * (sx_slot_row_bytes(slot) / element_bytes(k)) / WARPGROUP;
    uint32_t width = k->l.group->width;
    bool again = k->tile->walkers > 0 || k->store->unit >= plan_of(k)->depth;
    if (element % each == 0 && again) { /* a slot is used again */
        wait_for_engine(k, stores_behind(k, each));
        put_barrier(k);
    }
    put_words(k, element);
    if ((element + width) % each == 0) {
        store_slot(k, element + width - each);
    }
}

void sx_nvidia_end_store(sx_nvidia_block *k)
{
    SX_ASSERT(k->store->word_count == 0 && k->store->unit > 0);
    wait_for_engine(k, 0);
}
