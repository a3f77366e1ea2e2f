/* narrow.c - contractions of tensors of two bytes that a program widens first, as a framework does that wants one
 * rounding behind a product and its bias: the conversions of both factors, and nothing else, are computed inside, so
 * that matrix instructions multiply the factors as they lie in memory.
 *
 * It does not matter who else reads what was widened, or whether it is a weight: half of the bytes are read. What was
 * chosen for a factor may be dearer by itself than what it is made of. */
#include "core/optimize/fuser.h"

static bool is_narrow(sx_dtype dtype)
{
    return dtype == SX_BF16 || dtype == SX_F16;
}

/* The conversion from a chosen tensor of two bytes that a class of more is, or SX_EG_NONE. */
static uint32_t widening_of(const sx_fuser *f, uint32_t class_)
{
    const sx_eg *eg = &f->t->eg;
    uint32_t n = class_; /* a class is named by one of its members */
    if (is_narrow(sx_tensors_type(f->t, class_)->dtype)) {
        return SX_EG_NONE; /* it may be its own conversion to its own type */
    }
    do {
        if (eg->node[n].dead == 0 && sx_tensors_op(f->t, n) == SX_OP_CONVERT) {
            uint32_t from = sx_eg_child(eg, n, 0);
            if (is_narrow(sx_tensors_type(f->t, from)->dtype) && f->choice[from] != SX_EG_NONE) {
                return n;
            }
        }
        n = sx_eg_member_next(eg, n);
    } while (n != class_);
    return SX_EG_NONE;
}

sx_code sx_fuser_narrow(sx_fuser *f, const sx_fuser_kernel *k, sx_fuser_forms *list)
{
    sx_fuser_kernel narrow = *k;
    uint32_t inside = 0;
    SX_ASSERT(sx_body_kernel_kind(k->attr->body) == SX_KERNEL_DOT);
    SX_TRY(sx_fuser_grow(f, &narrow, 0)); /* through views */
    for (uint32_t a = 0; a < narrow.count;) {
        uint32_t from = widening_of(f, narrow.child[a]);
        sx_fuser_kernel widening;
        bool taken = false;
        if (from != SX_EG_NONE) {
            SX_TRY(sx_fuser_lift(f, from, &widening, &taken));
        }
        if (taken) {
            SX_TRY(sx_fuser_inline(f, &narrow, a, widening.node, &taken));
        }
        inside += taken ? 1 : 0;
        a += taken ? 0 : 1;
    }
    for (uint32_t a = 0; a < narrow.count; a++) {
        inside = is_narrow(sx_tensors_type(f->t, narrow.child[a])->dtype) ? inside : 0;
    }
    if (inside > 0) {
        SX_TRY(sx_fuser_grow(f, &narrow, 0));
        sx_fuser_keep(list, narrow.node);
    }
    return SX_OK;
}
