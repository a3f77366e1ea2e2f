/* image.c - is one term what another becomes under a substitution?
 *
 * Both are walked side by side, so that nothing is made: most questions are answered by the first element that
 * differs. SAME is a proof by itself: the same operations on elements at the same places. DIFFERENT means that
 * the substitution, which gives each value one number, gives another number than that of the term it is compared
 * with. Where it might fold or join what the walk sees as two shapes, the answer is UNKNOWN, and the image is
 * made and compared. */
#include "core/judge/algebra.h"

typedef enum { IMAGE_SAME, IMAGE_DIFFERENT, IMAGE_UNKNOWN } image;

/* Operations that no operand folds: what they become is the same operation, or a run of it. */
static bool never_folds(uint32_t op)
{
    switch ((int)op) {
    case SX_LOP_ADD:
    case SX_LOP_SUB:
    case SX_LOP_DIV:
    case SX_LOP_MAX:
    case SX_LOP_MIN:
    case SX_LOP_FMA:
    case SX_LOP_FNMA: return true;
    default: return false;
    }
}

typedef struct {
    const sx_subst *s;
    bool renames;  /* then what a term becomes has its shape */
    uint32_t left; /* terms that may still be looked at */
} question;
#define LOOKS_MAX 20000u

static image image_of(sx_algebra *g, uint32_t a, uint32_t b, question *q);

static image both(image x, image y)
{
    bool different = x == IMAGE_DIFFERENT || y == IMAGE_DIFFERENT;
    return different ? IMAGE_DIFFERENT : x == IMAGE_SAME ? y : x;
}

static image child_of(sx_algebra *g, uint32_t a, uint32_t b, question *q)
{
    if (a == 0 || b == 0) {
        return a == b ? IMAGE_SAME : IMAGE_DIFFERENT;
    }
    return image_of(g, a, b, q);
}

static image compare_children(sx_algebra *g, const sx_term *t, const sx_term *u, question *q)
{
    image all = IMAGE_SAME;
    for (uint32_t k = 0; k < 3 && all != IMAGE_DIFFERENT; k++) {
        all = both(all, child_of(g, t->child[k], u->child[k], q));
    }
    return all;
}

/* x y + z: the factors stand in either order. */
static image compare_products(sx_algebra *g, const sx_term *t, const sx_term *u, question *q)
{
    image found = child_of(g, t->child[0], u->child[0], q);
    found =
        found == IMAGE_DIFFERENT ? found : both(found, child_of(g, t->child[1], u->child[1], q));
    if (found != IMAGE_SAME && t->child[0] != t->child[1]) {
        image crossed = child_of(g, t->child[0], u->child[1], q);
        crossed = crossed == IMAGE_DIFFERENT
                      ? crossed
                      : both(crossed, child_of(g, t->child[1], u->child[0], q));
        found = crossed == IMAGE_DIFFERENT ? found : crossed;
    }
    return found == IMAGE_DIFFERENT ? found : both(found, child_of(g, t->child[2], u->child[2], q));
}

static image compare_operations(sx_algebra *g, const sx_term *t, const sx_term *u, question *q)
{
    bool product = t->op == SX_LOP_FMA || t->op == SX_LOP_FNMA;
    bool integers = t->op == SX_LOP_IADD || t->op == SX_LOP_IMUL; /* their factors go by number */
    bool sure = !integers && (q->renames || never_folds(t->op));
    image found = IMAGE_DIFFERENT;
    if (t->op == u->op && t->imm == u->imm && t->form == u->form) {
        found = product ? compare_products(g, t, u, q) : compare_children(g, t, u, q);
    }
    return found == IMAGE_DIFFERENT && !sure ? IMAGE_UNKNOWN : found;
}

/* Terms of another kind than what they are compared with. */
static image compare_kinds(const sx_term *t, const sx_term *u, question *q)
{
    bool operation = t->kind == SX_TERM_OP && never_folds(t->op) && u->kind != SX_TERM_RUN;
    bool place = t->kind == SX_TERM_ELEMENT || t->kind == SX_TERM_STATE || t->kind == SX_TERM_HOLE;
    return q->renames || operation || place ? IMAGE_DIFFERENT : IMAGE_UNKNOWN;
}

static image compare(sx_algebra *g, const sx_term *t, const sx_term *u, question *q)
{
    image found;
    if (t->kind != u->kind) {
        return compare_kinds(t, u, q);
    }
    switch ((sx_term_kind)t->kind) {
    case SX_TERM_ELEMENT:
    case SX_TERM_STATE:
    case SX_TERM_HOLE:
        if (t->imm != u->imm || t->width != u->width ||
            !sx_form_becomes(g, t->form, u->form, q->s)) {
            return IMAGE_DIFFERENT;
        }
        return compare_children(g, t, u, q);
    case SX_TERM_INT:
        return sx_form_becomes(g, t->form, u->form, q->s) ? IMAGE_SAME : IMAGE_DIFFERENT;
    case SX_TERM_OP: return compare_operations(g, t, u, q);
    case SX_TERM_RUN:
    case SX_TERM_RECUR:
        found =
            t->imm == u->imm && t->form == u->form ? compare_children(g, t, u, q) : IMAGE_DIFFERENT;
        return found == IMAGE_SAME || q->renames ? found : IMAGE_UNKNOWN;
    case SX_TERM_CONST:
    case SX_TERM_ACC:
    case SX_TERM_PART:
    default: return IMAGE_UNKNOWN;
    }
}

static image image_of(sx_algebra *g, uint32_t a, uint32_t b, question *q)
{
    const sx_term *t = &g->term[a];
    uint32_t seen;
    if ((t->vars & q->s->vars) == 0) {
        return a == b ? IMAGE_SAME : IMAGE_DIFFERENT;
    }
    if (sx_memo_find(g, a, q->s, &seen)) {
        return seen == b ? IMAGE_SAME : IMAGE_DIFFERENT;
    }
    if (q->left == 0) {
        return IMAGE_UNKNOWN;
    }
    q->left--;
    image found = compare(g, t, &g->term[b], q);
    if (found == IMAGE_SAME) {
        sx_memo_put(g, a, q->s, b);
    }
    return found;
}

bool sx_term_becomes(sx_algebra *g, uint32_t a, uint32_t b, const sx_subst *s)
{
    SX_ASSERT(s->hole == 0 && s->first == 0 && s->state_count == 0);
    if (g->refused) {
        return false;
    }
    question q = {s, sx_subst_renames(g, a, s), LOOKS_MAX};
    image found = image_of(g, a, b, &q);
    return found == IMAGE_UNKNOWN ? sx_term_subst(g, a, s) == b : found == IMAGE_SAME;
}
