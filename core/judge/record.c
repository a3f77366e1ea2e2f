/* record.c - sets of stored places: joined, compared, read. */
#include "core/judge/record.h"

#include <string.h>

static uint32_t store_var(uint32_t k)
{
    return SX_VAR_STORE + k;
}

static void set_range(sx_algebra *g, uint32_t var, int64_t count)
{
    g->low[var] = 0;
    g->high[var] = count - 1;
}

/* ---- do two sets meet? ---- */
typedef struct {
    int64_t coef, span; /* coef * 0 .. span */
} reach;

/* The reaches of a form, largest coefficient first; coefficients are made positive. */
static uint32_t reaches_of(sx_algebra *g, const sx_lin *form, reach r[SX_VAR_COUNT], int64_t *base)
{
    uint32_t n = 0;
    *base = form->constant;
    for (uint64_t left = form->vars; left != 0; left &= left - 1) {
        uint32_t v = (uint32_t)__builtin_ctzll(left);
        int64_t c = form->coef[v];
        int64_t from = 0;
        int64_t whole = 0;
        bool ok = c != INT64_MIN && sx_mul_i64(c, c > 0 ? g->low[v] : g->high[v], &from) &&
                  sx_add_i64(*base, from, base);
        c = c < 0 ? -c : c;
        ok = ok && sx_mul_i64(c, g->high[v] - g->low[v], &whole);
        if (!ok) {
            (void)sx_refuse(g, "the range of a form overflows");
            return 0;
        }
        if (g->high[v] == g->low[v]) {
            continue;
        }
        uint32_t at = n++;
        for (; at > 0 && r[at - 1].coef < c; at--) {
            r[at] = r[at - 1];
        }
        r[at] = (reach){c, g->high[v] - g->low[v]};
    }
    return n;
}

/* Reaches of one coefficient are one: their sums are those of the longer reach. */
static bool merge_equal(reach *r, uint32_t *count)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < *count; k++) {
        if (n > 0 && r[n - 1].coef == r[k].coef) {
            if (!sx_add_i64(r[n - 1].span, r[k].span, &r[n - 1].span)) {
                return false;
            }
        } else {
            r[n++] = r[k];
        }
    }
    *count = n;
    return true;
}

/* Is no sum of the reaches and `base` strictly between low and high? span[k]: the whole reach from k on. */
static bool window_avoids(const reach *r, const int64_t *span, uint32_t n, int64_t base,
                          int64_t low, int64_t high)
{
    int64_t last;
    if (!sx_add_i64(base, span[0], &last)) {
        return false;
    }
    if (base >= high || last <= low) {
        return true;
    }
    /* modulo the greatest common divisor of the larger coefficients, the smaller ones are a window */
    int64_t m = 0;
    for (uint32_t k = 0; k < n; k++) {
        m = sx_gcd_i64(r[k].coef, m);
        /* is there a multiple of m strictly between low - base - span and high - base? */
        int64_t from, to;
        if (!sx_sub_i64(low, base + span[k + 1], &from) || !sx_sub_i64(high, base, &to)) {
            return false;
        }
        int64_t first = from >= 0 ? from / m + 1 : -((-from - 1) / m); /* least multiple > from */
        int64_t at;
        if (sx_mul_i64(first, m, &at) && at >= to) {
            return true;
        }
    }
    return false;
}

/* Values of a variable that are looked at one by one, and for how many variables. */
#define TRIED_MAX 4
#define TRIED_DEPTH 3

/* The same; where the window does not tell, each value is tried that the variable of the largest coefficient may have,
 * if they are few: rows of an odd number of elements, every other one of which is stored. */
static bool tries_avoid(const reach *r, const int64_t *span, uint32_t n, int64_t base, int64_t low,
                        int64_t high, uint32_t depth)
{
    int64_t from, to, moved;
    if (window_avoids(r, span, n, base, low, high)) {
        return true;
    }
    if (n < 2 || depth == 0 || !sx_sub_i64(low, base + span[1], &from) ||
        !sx_sub_i64(high, base, &to)) {
        return false;
    }
    int64_t first = sx_max_i64(0, from >= 0 ? from / r[0].coef : -(-from / r[0].coef));
    int64_t end = sx_min_i64(r[0].span, to >= 0 ? to / r[0].coef : -1);
    if (end - first >= TRIED_MAX) {
        return false;
    }
    for (int64_t t = first; t <= end; t++) {
        if (!sx_mul_i64(t, r[0].coef, &moved) || !sx_add_i64(base, moved, &moved) ||
            !tries_avoid(r + 1, span + 1, n - 1, moved, low, high, depth - 1)) {
            return false;
        }
    }
    return true;
}

bool sx_lin_avoids(sx_algebra *g, const sx_lin *form, int64_t low, int64_t high)
{
    reach r[SX_VAR_COUNT];
    int64_t base;
    uint32_t n = reaches_of(g, form, r, &base);
    int64_t span[SX_VAR_COUNT + 1]; /* of the reaches from k on */
    bool ok = merge_equal(r, &n);
    span[n] = 0;
    for (uint32_t k = n; k-- > 0;) {
        int64_t whole;
        ok = ok && sx_mul_i64(r[k].coef, r[k].span, &whole) &&
             sx_add_i64(span[k + 1], whole, &span[k]);
    }
    int64_t last;
    if (!ok) {
        (void)sx_refuse(g, "the range of a form overflows");
    }
    return !g->refused && sx_add_i64(base, span[0], &last) &&
           tries_avoid(r, span, n, base, low, high, TRIED_DEPTH);
}

void sx_bytes_reached(const sx_algebra *g, uint32_t address, uint32_t width, uint32_t dims,
                      const int64_t *count, int64_t *low, int64_t *end)
{
    const sx_form *f = &g->form[address];
    const int64_t *coef = &g->coef[f->first];
    bool ok = sx_add_i64(f->constant, width, end);
    *low = f->constant;
    for (uint64_t left = f->vars; ok && left != 0; left &= left - 1) {
        uint32_t v = (uint32_t)__builtin_ctzll(left);
        bool counted = v >= SX_VAR_STORE && v - SX_VAR_STORE < dims;
        int64_t at_low = 0;
        int64_t at_high = 0;
        ok = sx_mul_i64(*coef, counted ? 0 : g->low[v], &at_low) &&
             sx_mul_i64(*coef, counted ? count[v - SX_VAR_STORE] - 1 : g->high[v], &at_high) &&
             sx_add_i64(*low, sx_min_i64(at_low, at_high), low) &&
             sx_add_i64(*end, sx_max_i64(at_low, at_high), end);
        coef++;
    }
    if (!ok) {
        *low = INT64_MIN;
        *end = INT64_MAX;
    }
}

/* Both are in lists. */
static bool far_apart(const sx_record *a, const sx_record *b)
{
    SX_ASSERT(a->low < a->end && b->low < b->end);
    return a->buffer != b->buffer || a->end <= b->low || b->end <= a->low;
}

bool sx_records_apart(sx_algebra *g, const sx_record *a, const sx_record *b, uint32_t var,
                      int64_t trip, sx_relation relation)
{
    if (far_apart(a, b)) {
        return true;
    }
    sx_lin d, other;
    sx_lin_get(g, a->address, &d);
    sx_lin_get(g, b->address, &other);
    for (uint32_t k = 0; k < a->dims; k++) {
        set_range(g, store_var(k), a->count[k]);
    }
    sx_lin renamed;
    sx_lin_init(&renamed, other.constant);
    for (uint64_t left = other.vars; left != 0; left &= left - 1) {
        uint32_t v = (uint32_t)__builtin_ctzll(left);
        uint32_t to = v;
        if (v >= SX_VAR_STORE) { /* the names of run variables are free here */
            to = SX_VAR_RUN + (v - SX_VAR_STORE);
            set_range(g, to, b->count[v - SX_VAR_STORE]);
        } else if (v == var && relation != SX_VAR_SAME) {
            to = SX_VAR_RUN + SX_STORE_DIMS;
            set_range(g, to, trip);
        }
        sx_lin_add(g, &renamed, to, other.coef[v]);
    }
    if (relation == SX_VAR_LARGER || relation == SX_VAR_SMALLER) {
        bool both = var < SX_VAR_COUNT && (d.vars & other.vars & SX_VAR_BIT(var)) != 0;
        if (!both || d.coef[var] != other.coef[var] || trip < 2) {
            return false;
        }
        uint32_t alias = SX_VAR_RUN + SX_STORE_DIMS;
        int64_t c = d.coef[var];
        sx_lin_add(g, &renamed, alias, relation == SX_VAR_LARGER ? 0 : -2 * c);
        sx_lin_add(g, &renamed, var, c); /* equal parts cancel; the alias is the difference */
        g->low[alias] = 1;
        g->high[alias] = trip - 1;
    }
    sx_lin_add_lin(g, &d, &renamed, -1);
    return !g->refused && sx_lin_avoids(g, &d, -(int64_t)a->width, b->width);
}

/* ---- digits ---- */
bool sx_decode(sx_algebra *g, const sx_lin *form, const int64_t *stride, const int64_t *count,
               uint32_t dims, sx_lin *digit)
{
    for (uint32_t k = 0; k < dims; k++) {
        digit[k].constant = 0;
        digit[k].vars = 0;
    }
    int64_t corner = form->constant; /* the least value of the form: its digits are not negative */
    for (uint64_t left = form->vars; left != 0; left &= left - 1) {
        uint32_t v = (uint32_t)__builtin_ctzll(left);
        int64_t rest = form->coef[v];
        int64_t least = rest > 0 ? g->low[v] : g->high[v];
        int64_t product;
        if (!sx_mul_i64(rest, least, &product) || !sx_add_i64(corner, product, &corner)) {
            return false;
        }
        for (uint32_t k = dims; k-- > 0 && rest != 0;) {
            int64_t q = rest / stride[k];
            if (q != 0) {
                sx_lin_add(g, &digit[k], v, q);
                rest %= stride[k];
                if (!sx_mul_i64(q, -least, &product)) {
                    return false;
                }
                sx_lin_add_constant(g, &digit[k], product);
            }
        }
        if (rest != 0) {
            return false;
        }
    }
    int64_t rest = corner;
    for (uint32_t k = dims; k-- > 0;) {
        int64_t q = rest / stride[k] - (rest % stride[k] < 0);
        q = k > 0 || rest % stride[k] == 0 ? q : 0;
        sx_lin_add_constant(g, &digit[k], q);
        rest -= q * stride[k];
    }
    if (rest != 0 || g->refused) {
        return false;
    }
    for (uint32_t k = 0; k < dims; k++) {
        int64_t low, high;
        if (!sx_lin_range(g, &digit[k], &low, &high) || low < 0 || high >= count[k]) {
            return false;
        }
    }
    return true;
}

sx_read sx_record_read(sx_algebra *g, const sx_record *record, uint32_t address, uint32_t width,
                       uint32_t *value)
{
    sx_lin d, base, digit[SX_STORE_DIMS];
    int64_t stride[SX_STORE_DIMS];
    sx_lin_get(g, address, &d);
    sx_lin_get(g, record->address, &base);
    for (uint32_t k = 0; k < record->dims; k++) {
        stride[k] = base.coef[store_var(k)];
        base.vars &= ~SX_VAR_BIT(store_var(k));
    }
    sx_lin_add_lin(g, &d, &base, -1);
    if (width == record->width && sx_decode(g, &d, stride, record->count, record->dims, digit)) {
        sx_subst s;
        sx_subst_begin(g, &s);
        for (uint32_t k = 0; k < record->dims; k++) {
            sx_subst_var(&s, store_var(k), sx_form_put(g, &digit[k]));
        }
        sx_subst_share(g, &s);
        *value = record->value == 0 ? 0 : sx_term_subst(g, record->value, &s);
        return SX_READ_COVERED;
    }
    for (uint32_t k = 0; k < record->dims; k++) {
        set_range(g, store_var(k), record->count[k]);
        sx_lin_add(g, &d, store_var(k), -stride[k]);
    }
    bool apart = !g->refused && sx_lin_avoids(g, &d, -(int64_t)width, record->width);
    return apart ? SX_READ_APART : SX_READ_UNKNOWN;
}

/* ---- normal form ---- */
static uint32_t swap_value(sx_algebra *g, uint32_t term, const sx_subst *s)
{
    return term == 0 ? 0 : sx_term_subst(g, term, s);
}

/* Store variables in the order of their strides; those of one point go. */
static bool sort_dims(sx_algebra *g, sx_record *r)
{
    sx_lin lin;
    sx_lin_get(g, r->address, &lin);
    uint32_t order[SX_STORE_DIMS];
    uint32_t n = 0;
    bool changed = false;
    sx_subst s;
    sx_subst_begin(g, &s);
    for (uint32_t k = 0; k < r->dims; k++) {
        bool moves = (lin.vars & SX_VAR_BIT(store_var(k))) != 0;
        if (r->count[k] == 1) {
            sx_subst_var(&s, store_var(k), 0);
            changed = true;
            continue;
        }
        if (!moves || lin.coef[store_var(k)] <= 0) {
            return false;
        }
        uint32_t at = n++;
        for (; at > 0 && lin.coef[store_var(order[at - 1])] > lin.coef[store_var(k)]; at--) {
            order[at] = order[at - 1];
        }
        order[at] = k;
    }
    int64_t count[SX_STORE_DIMS];
    for (uint32_t k = 0; k < n; k++) {
        count[k] = r->count[order[k]];
        if (order[k] != k) {
            sx_subst_var(&s, store_var(order[k]), sx_form_var(g, store_var(k), 1, 0));
            changed = true;
        }
    }
    if (changed) {
        r->address = sx_form_subst(g, r->address, &s);
        r->value = swap_value(g, r->value, &s);
        memcpy(r->count, count, n * sizeof(count[0]));
        r->dims = n;
    }
    return true;
}

/* Store variables k and k + 1 as one, if places and values allow it. */
static bool merge_dims(sx_algebra *g, sx_record *r, uint32_t k)
{
    sx_lin lin;
    int64_t reach_of_k, product;
    sx_lin_get(g, r->address, &lin);
    if (!sx_mul_i64(lin.coef[store_var(k)], r->count[k], &reach_of_k) ||
        lin.coef[store_var(k + 1)] != reach_of_k ||
        !sx_mul_i64(r->count[k], r->count[k + 1], &product)) {
        return false;
    }
    uint32_t flat = 0;
    if (r->value != 0) {
        flat = sx_term_flat(g, r->value, store_var(k), store_var(k + 1), r->count[k]);
        if (flat == 0) {
            return false;
        }
    }
    sx_subst zero;
    sx_subst_begin(g, &zero);
    sx_subst_var(&zero, store_var(k + 1), 0);
    uint32_t address = sx_form_subst(g, r->address, &zero);
    r->count[k] = product;
    r->value = flat;
    r->address = address;
    sx_subst move;
    sx_subst_begin(g, &move);
    for (uint32_t i = k + 2; i < r->dims; i++) {
        r->count[i - 1] = r->count[i];
        sx_subst_var(&move, store_var(i), sx_form_var(g, store_var(i - 1), 1, 0));
    }
    r->dims--;
    r->value = move.vars == 0 ? r->value : swap_value(g, r->value, &move);
    r->address = sx_form_subst(g, r->address, &move);
    return true;
}

bool sx_record_normalise(sx_algebra *g, sx_record *r)
{
    if (!sort_dims(g, r)) {
        return false;
    }
    for (uint32_t k = 0; k + 1 < r->dims;) {
        k = merge_dims(g, r, k) ? 0 : k + 1;
    }
    sx_lin lin;
    int64_t reached = r->width;
    sx_lin_get(g, r->address, &lin);
    for (uint32_t k = 0; k < r->dims; k++) {
        int64_t more;
        int64_t stride = lin.coef[store_var(k)];
        if (stride < reached || !sx_mul_i64(stride, r->count[k] - 1, &more) ||
            !sx_add_i64(reached, more, &reached)) {
            return false;
        }
    }
    return !g->refused;
}

/* A loop that goes on where a store variable ends, in place and value, makes that variable longer: what
 * merge_dims would find once the loop's variable is a store variable of its own. */
static bool continue_dim(sx_algebra *g, sx_record *r, uint32_t var, int64_t trip)
{
    sx_lin lin;
    sx_lin_get(g, r->address, &lin);
    for (uint32_t k = 0; k < r->dims; k++) {
        int64_t reach_of_k, product;
        if ((lin.vars & SX_VAR_BIT(store_var(k))) == 0 ||
            !sx_mul_i64(lin.coef[store_var(k)], r->count[k], &reach_of_k) ||
            lin.coef[var] != reach_of_k || !sx_mul_i64(r->count[k], trip, &product)) {
            continue;
        }
        uint32_t flat = 0;
        if (r->value != 0) {
            flat = sx_term_flat(g, r->value, store_var(k), var, r->count[k]);
            if (flat == 0) {
                continue;
            }
        }
        sx_subst s;
        sx_subst_begin(g, &s);
        sx_subst_var(&s, var, 0);
        r->address = sx_form_subst(g, r->address, &s);
        r->value = flat;
        r->count[k] = product;
        return true;
    }
    return false;
}

bool sx_record_close(sx_algebra *g, sx_record *r, uint32_t var, int64_t trip)
{
    sx_subst s;
    sx_subst_begin(g, &s);
    bool moves = (g->form[r->address].vars & SX_VAR_BIT(var)) != 0;
    if (!moves) { /* the last iteration stays */
        if (r->value != 0 && trip > 1) {
            sx_buffer_again(g, r->buffer);
        }
        sx_subst_var(&s, var, sx_form_constant(g, trip - 1));
        r->value = swap_value(g, r->value, &s);
        return !g->refused;
    }
    if (continue_dim(g, r, var, trip)) {
        return sx_record_normalise(g, r);
    }
    if (r->dims >= SX_STORE_DIMS) {
        (void)sx_refuse(g, "a record of more than %u dimensions", SX_STORE_DIMS);
        return false;
    }
    sx_subst_var(&s, var, sx_form_var(g, store_var(r->dims), 1, 0));
    sx_subst_share(g, &s);
    r->address = sx_form_subst(g, r->address, &s);
    r->value = swap_value(g, r->value, &s);
    r->count[r->dims++] = trip;
    return sx_record_normalise(g, r);
}

/* ---- joining ---- */
static bool same_after(sx_algebra *g, const sx_record *q, const sx_record *r, const sx_subst *s)
{
    return sx_form_becomes(g, q->address, r->address, s) &&
           sx_term_becomes(g, q->value, r->value, s);
}

/* `r` is the next slice of `q` along dimension k: one of the same rank, or one point. */
static bool continues(sx_algebra *g, sx_record *q, const sx_record *r, uint32_t k)
{
    sx_subst s;
    sx_subst_begin(g, &s);
    bool point = r->dims + 1 == q->dims;
    for (uint32_t i = 0; i < q->dims; i++) {
        uint32_t j = point && i > k ? i - 1 : i;
        if (i != k && q->count[i] != r->count[j]) {
            return false;
        }
        if (point && i > k) {
            sx_subst_var(&s, store_var(i), sx_form_var(g, store_var(i - 1), 1, 0));
        }
    }
    uint32_t next =
        point ? sx_form_constant(g, q->count[k]) : sx_form_var(g, store_var(k), 1, q->count[k]);
    sx_subst_var(&s, store_var(k), next);
    if (!same_after(g, q, r, &s)) {
        return false;
    }
    q->count[k] += point ? 1 : r->count[k];
    return true;
}

#define CONSTANT_STRIDE 512 /* bytes from line to line of a block of constants, at most */
static bool join(sx_algebra *g, const sx_record *q, const sx_record *r, sx_record *joined)
{
    if (q->buffer != r->buffer || q->width != r->width || q->mem != r->mem ||
        (q->value == 0) != (r->value == 0) ||
        g->form[q->address].constant == g->form[r->address].constant) {
        return false;
    }
    *joined = *q;
    if (q->dims == r->dims || q->dims == r->dims + 1) {
        for (uint32_t k = 0; k < q->dims; k++) {
            if (continues(g, joined, r, k)) {
                return sx_record_normalise(g, joined);
            }
        }
    }
    if (q->dims != r->dims || q->dims >= SX_STORE_DIMS ||
        memcmp(q->count, r->count, q->dims * sizeof(q->count[0])) != 0) {
        return false;
    }
    /* blocks of one constant are of one shape by chance: the next line of the second would find no place */
    int64_t apart = g->form[r->address].constant - g->form[q->address].constant;
    if (q->value != 0 && g->term[q->value].kind == SX_TERM_CONST &&
        (q->dims >= 2 || apart > CONSTANT_STRIDE || apart < -CONSTANT_STRIDE)) {
        return false;
    }
    uint32_t var = store_var(q->dims);
    joined->address = sx_form_pair(g, q->address, r->address, var);
    if (joined->address == UINT32_MAX) {
        return false;
    }
    joined->value = q->value == 0 ? 0 : sx_term_pair(g, q->value, r->value, var);
    joined->count[joined->dims++] = 2;
    return (q->value == 0) == (joined->value == 0) && sx_record_normalise(g, joined);
}

static void set_bytes(const sx_algebra *g, sx_record *r)
{
    sx_bytes_reached(g, r->address, r->width, r->dims, r->count, &r->low, &r->end);
}

/* Appends it; its bytes are not known yet. */
static bool append(sx_algebra *g, sx_records *list, const sx_record *record)
{
    void *array = list->record;
    if (list->count >= SX_RECORDS_MAX) {
        (void)sx_refuse(g, "more than %u store records", SX_RECORDS_MAX);
        return false;
    }
    if (sx_grow(g->cx, &array, &list->capacity, list->count + 1, sizeof(sx_record)) != SX_OK) {
        (void)sx_refuse(g, "out of memory");
        return false;
    }
    list->record = array;
    list->record[list->count++] = *record;
    return true;
}

void sx_records_push(sx_algebra *g, sx_records *list, const sx_record *record)
{
    if (append(g, list, record)) {
        set_bytes(g, &list->record[list->count - 1]);
    }
}

#define JOIN_BACK 24u
void sx_records_put(sx_algebra *g, sx_records *list, uint32_t first, const sx_record *record)
{
    if (!append(g, list, record)) {
        return;
    }
    uint32_t at = list->count - 1;
    uint32_t tried = 0;
    bool has_bytes = false;
    for (uint32_t q = at; q-- > first && tried < JOIN_BACK && !g->refused; tried++) {
        sx_record *older = &list->record[q];
        sx_record joined;
        if (join(g, older, &list->record[at], &joined)) {
            *older = joined;
            memmove(&list->record[at], &list->record[at + 1],
                    (list->count - at - 1) * sizeof(sx_record));
            list->count--;
            at = q;
            tried = 0;
            has_bytes = false;
            continue;
        }
        if (!has_bytes) { /* they are not asked for while it goes on joining */
            set_bytes(g, &list->record[at]);
            has_bytes = true;
        }
        if (record->value != 0 &&
            !sx_records_apart(g, older, &list->record[at], SX_VAR_COUNT, 1, SX_VAR_SAME)) {
            return;
        }
    }
    if (!has_bytes) {
        set_bytes(g, &list->record[at]);
    }
}
