#include "client/verify/places.h"

#include <stdlib.h>
#include <string.h>

#include "client/runtime/pages.h"

#define ALIGN ((size_t)64)
/* Weights of so many bytes are windows. */
#define WINDOW_BYTES_MIN ((size_t)1 << 20)
/* From window to window: a prime number of lines of the cache, far from multiples of usual rows, so that the rows of
 * two windows are no rows of each other. */
#define SHIFT ((size_t)331 * ALIGN)

static size_t aligned(uint64_t bytes)
{
    return ((size_t)bytes + ALIGN - 1) & ~(ALIGN - 1);
}

static bool is_given(const sx_module_tensor *tensor)
{
    return tensor->place == SX_TENSOR_INPUT || tensor->place == SX_TENSOR_WEIGHT;
}

/* An output that has memory of its own, or lies in the memory of an input. */
static bool is_result(const sx_module_tensor *tensor)
{
    return tensor->place == SX_TENSOR_OUTPUT;
}

/* ---- places of their own ---- */

static void *grown_pages(void *memory, size_t *have, size_t bytes)
{
    if (bytes > *have) {
        sxr_pages_free(memory, *have);
        memory = sxr_pages(bytes);
        *have = memory != NULL ? bytes : 0;
    }
    return memory;
}

sx_code sxv_places_make(sxv_verifier *v)
{
    sxv_places *p = &v->places;
    size_t count = (size_t)v->module->tensor_count + 1;
    p->at = calloc(count, sizeof(*p->at));
    p->maker = calloc(count, sizeof(*p->maker));
    p->left = calloc(count, sizeof(*p->left));
    if (p->at == NULL || p->maker == NULL || p->left == NULL) {
        return SX_FAIL(v->cx, SX_NOMEM, "no memory for a list of tensors");
    }
    return SX_OK;
}

void sxv_places_fini(sxv_verifier *v)
{
    sxv_places *p = &v->places;
    for (uint32_t i = 0; i < p->room_count; i++) {
        sxr_pages_free(p->room[i].memory, p->room[i].bytes);
    }
    sxr_pages_free(p->own, p->own_bytes);
    sxr_pages_free(p->shared, p->shared_bytes);
    free(p->room);
    free(p->at);
    free(p->maker);
    free(p->left);
    *p = (sxv_places){0};
}

/* ---- windows ---- */

/* The weights that are drawn in one way: `count` windows, of which the last ends at `bytes`. */
typedef struct {
    sxv_recipe recipe;
    uint32_t dtype, element_bytes, count;
    size_t bytes, offset;
} run;

static bool is_window(const sx_module_tensor *tensor, bool wide)
{
    return !wide && tensor->place == SX_TENSOR_WEIGHT && tensor->size >= WINDOW_BYTES_MIN;
}

static run *run_of(run *list, uint32_t *count, const sx_module_tensor *tensor,
                   const sxv_recipe *recipe)
{
    for (uint32_t i = 0; i < *count; i++) {
        const sxv_recipe *other = &list[i].recipe;
        if (list[i].dtype == tensor->dtype && other->low == recipe->low &&
            other->width == recipe->width && other->either_sign == recipe->either_sign &&
            other->integers == recipe->integers) {
            return &list[i];
        }
    }
    list[*count] =
        (run){.recipe = *recipe, .dtype = tensor->dtype, .element_bytes = tensor->element_bytes};
    return &list[(*count)++];
}

typedef struct {
    const sxv_recipe *recipe; /* of the parameters of the program */
    uint32_t recipe_count;
    uint64_t seed;
    bool wide;
    run *run;
    uint32_t run_count;
} draw;

static sxv_recipe recipe_of(const sxv_verifier *v, const draw *d, uint32_t tensor)
{
    sx_span name = sx_module_string(v->module, v->module->tensor[tensor].name);
    sxv_recipe recipe = sxv_recipe_of(d->recipe, d->recipe_count, name);
    recipe.wide = d->wide;
    return recipe;
}

/* Where in its run each window begins, how long the runs are, and memory for them with their elements. */
static sx_code draw_runs(sxv_verifier *v, draw *d)
{
    sxv_places *p = &v->places;
    size_t bytes = 0;
    d->run = SX_NEW_ARRAY(v->cx, run, (size_t)v->module->tensor_count + 1);
    if (d->run == NULL) {
        return v->cx->error.code;
    }
    for (uint32_t i = 0; i < v->module->tensor_count; i++) {
        const sx_module_tensor *tensor = &v->module->tensor[i];
        if (is_window(tensor, d->wide)) {
            sxv_recipe recipe = recipe_of(v, d, i);
            run *r = run_of(d->run, &d->run_count, tensor, &recipe);
            size_t end = r->count++ * SHIFT + aligned(tensor->size);
            r->bytes = end > r->bytes ? end : r->bytes;
        }
    }
    for (uint32_t i = 0; i < d->run_count; i++) {
        d->run[i].offset = bytes;
        d->run[i].count = 0;
        bytes += d->run[i].bytes;
    }
    p->shared = grown_pages(p->shared, &p->shared_bytes, bytes);
    if (p->shared == NULL && bytes > 0) {
        return SX_FAIL(v->cx, SX_NOMEM, "no memory for weights of %zu bytes", bytes);
    }
    for (uint32_t i = 0; i < d->run_count; i++) {
        const run *r = &d->run[i];
        sxv_draw(v->pool, &r->recipe, (sx_dtype)r->dtype, (int64_t)(r->bytes / r->element_bytes),
                 d->seed, p->shared + r->offset);
    }
    return SX_OK;
}

/* Memory for the tensors of the interface that are no windows. */
static sx_code make_own(sxv_verifier *v, bool wide)
{
    sxv_places *p = &v->places;
    for (uint32_t pass = 0; pass < 2; pass++) { /* first how much, then where */
        size_t at = 0;
        for (uint32_t i = 0; i < v->module->tensor_count; i++) {
            const sx_module_tensor *tensor = &v->module->tensor[i];
            bool apart = is_result(tensor) && tensor->alias == SX_MODULE_NONE;
            if ((is_given(tensor) && !is_window(tensor, wide)) || apart) {
                p->at[i] = pass == 1 ? p->own + at : NULL;
                at += aligned(tensor->size + 1);
            }
        }
        p->own = grown_pages(p->own, &p->own_bytes, at);
        if (p->own == NULL && at > 0) {
            return SX_FAIL(v->cx, SX_NOMEM, "no memory for tensors of %zu bytes", at);
        }
    }
    for (uint32_t i = 0; i < v->module->tensor_count; i++) {
        uint32_t alias = v->module->tensor[i].alias;
        p->at[i] = alias != SX_MODULE_NONE ? p->at[alias] : p->at[i];
    }
    return SX_OK;
}

static sx_code bind_tensor(sxv_verifier *v, draw *d, uint32_t i)
{
    const sx_module_tensor *tensor = &v->module->tensor[i];
    sxv_places *p = &v->places;
    uint64_t size = sxr_size(v->program, i);
    if (is_given(tensor)) {
        sxv_recipe recipe = recipe_of(v, d, i);
        if (is_window(tensor, d->wide)) {
            run *r = run_of(d->run, &d->run_count, tensor, &recipe);
            p->at[i] = p->shared + r->offset + r->count++ * SHIFT;
        } else {
            sxv_draw(v->pool, &recipe, (sx_dtype)tensor->dtype,
                     (int64_t)(size / tensor->element_bytes), d->seed, p->at[i]);
        }
    } else if (tensor->alias == SX_MODULE_NONE) {
        sxr_pool_run(v->pool, sxv_write_pattern, p->at[i], (int64_t)size);
    }
    return sxr_bind(v->cx, v->program, i, p->at[i], size);
}

/* State has memory of the program, and any version of it may come before a run. */
static void draw_state(sxv_verifier *v, const draw *d, uint32_t i)
{
    const sx_module_tensor *tensor = &v->module->tensor[i];
    sxv_recipe recipe = recipe_of(v, d, i);
    SX_ASSERT(tensor->place == SX_TENSOR_STATE && sxr_memory(v->program, i) != NULL);
    sxv_draw(v->pool, &recipe, (sx_dtype)tensor->dtype,
             (int64_t)(tensor->size / tensor->element_bytes), d->seed, sxr_memory(v->program, i));
}

/* Of the variant. Temporaries lie over each other, so their memory is written once. */
static void hide_own_tensors(sxv_verifier *v)
{
    uint8_t *first = NULL;
    uint8_t *last = NULL;
    for (uint32_t i = 0; i < v->module->tensor_count; i++) {
        const sx_module_tensor *tensor = &v->module->tensor[i];
        uint8_t *memory = sxr_memory(v->program, i);
        if (tensor->variant != v->variant && tensor->variant != SX_MODULE_NONE) {
            continue;
        }
        if (tensor->place == SX_TENSOR_TEMPORARY) {
            first = first == NULL || memory < first ? memory : first;
            last = last == NULL || memory + tensor->size > last ? memory + tensor->size : last;
        } else if (tensor->place == SX_TENSOR_PERSISTENT && v->places.maker[i] == SX_MODULE_NONE) {
            sxr_pool_run(v->pool, sxv_write_pattern, memory, (int64_t)tensor->size);
        }
    }
    if (first != NULL) {
        sxr_pool_run(v->pool, sxv_write_pattern, first, (int64_t)(last - first));
    }
}

sx_code sxv_bind_random(sxv_verifier *v, const sx_graph *sent, uint64_t seed, bool wide)
{
    draw d = {.seed = seed, .wide = wide};
    sxv_recipe *recipe;
    SX_TRY(sxv_draw_recipes(v->cx, sent, &recipe, &d.recipe_count));
    d.recipe = recipe;
    SX_TRY(make_own(v, wide));
    SX_TRY(draw_runs(v, &d));
    hide_own_tensors(v);
    for (uint32_t i = 0; i < v->module->tensor_count; i++) {
        const sx_module_tensor *tensor = &v->module->tensor[i];
        if (is_given(tensor) || is_result(tensor)) {
            SX_TRY(bind_tensor(v, &d, i));
        } else if (tensor->place == SX_TENSOR_STATE) {
            draw_state(v, &d, i);
        }
    }
    return sxr_remember(v->cx, v->program);
}

/* ---- what the prologue makes ---- */

/* Does the memory of this persistent tensor belong to it alone? */
static bool is_apart(const sx_module *module, uint32_t tensor)
{
    const sx_module_tensor *one = &module->tensor[tensor];
    for (uint32_t i = 0; i < module->tensor_count; i++) {
        const sx_module_tensor *other = &module->tensor[i];
        if (i != tensor && other->place == SX_TENSOR_PERSISTENT &&
            one->offset < other->offset + other->size && other->offset < one->offset + one->size) {
            return false;
        }
    }
    return true;
}

/* May the launch wait until somebody reads its result? So far every persistent tensor has been looked at that launches
 * before it make. */
static bool may_wait(const sxv_verifier *v, uint32_t index)
{
    const sx_module *module = v->module;
    const sx_module_launch *launch = &module->launch[index];
    const sx_module_kernel *kernel = sx_module_kernel_of(module, index);
    if (kernel == NULL || launch->prologue != 1 || kernel->result_count != 1) {
        return false;
    }
    const uint32_t *arg = module->arg + launch->arg_first;
    uint32_t result = arg[launch->arg_count - 1];
    for (uint32_t a = 0; a + 1 < launch->arg_count; a++) {
        uint32_t from = module->tensor[arg[a]].place;
        if (from != SX_TENSOR_WEIGHT && from != SX_TENSOR_CONSTANT &&
            v->places.maker[arg[a]] == SX_MODULE_NONE) {
            return false;
        }
    }
    return module->tensor[result].place == SX_TENSOR_PERSISTENT && is_apart(module, result);
}

/* The number of launches of the variant that write the tensor. */
static uint32_t writers(const sxv_verifier *v, uint32_t tensor)
{
    const sx_module *module = v->module;
    const sx_module_variant *variant = &module->variant[v->variant];
    uint32_t count = 0;
    for (uint32_t k = 0; k < variant->launch_count; k++) {
        const sx_module_launch *launch = &module->launch[variant->launch_first + k];
        uint32_t results = sx_module_results(module, launch);
        for (uint32_t a = launch->arg_count - results; a < launch->arg_count; a++) {
            count += module->arg[launch->arg_first + a] == tensor ? 1 : 0;
        }
    }
    return count;
}

/* The tensor that waits, or SX_MODULE_NONE, of which this one is the panels: samples of a kernel that reads the panels
 * are computed from it (kernels.c). */
static uint32_t source_of(const sxv_verifier *v, uint32_t tensor)
{
    uint32_t maker = v->places.maker[tensor];
    const sx_module_kernel *kernel =
        maker != SX_MODULE_NONE ? sx_module_kernel_of(v->module, maker) : NULL;
    if (kernel == NULL || kernel->kind != SX_MODULE_PACK) {
        return SX_MODULE_NONE;
    }
    const sx_module_launch *launch = &v->module->launch[maker];
    const uint32_t *arg = &v->module->arg[launch->arg_first];
    uint32_t result = 0; /* each stands for one of the first arguments */
    while (arg[launch->arg_count - kernel->result_count + result] != tensor) {
        result++;
    }
    uint32_t source = arg[result];
    return v->places.maker[source] != SX_MODULE_NONE ? source : SX_MODULE_NONE;
}

/* Adds `by` to the count of readers of each tensor that the launch needs. */
static void count_readers(sxv_verifier *v, uint32_t index, uint32_t *count, int32_t by)
{
    const sx_module_launch *launch = &v->module->launch[index];
    uint32_t results = sx_module_results(v->module, launch);
    for (uint32_t a = 0; a + results < launch->arg_count; a++) {
        uint32_t tensor = v->module->arg[launch->arg_first + a];
        for (; tensor != SX_MODULE_NONE; tensor = source_of(v, tensor)) {
            count[tensor] += (uint32_t)by;
        }
    }
}

void sxv_places_plan(sxv_verifier *v)
{
    const sx_module *module = v->module;
    const sx_module_variant *variant = &module->variant[v->variant];
    sxv_places *p = &v->places;
    for (uint32_t i = 0; i < module->tensor_count; i++) {
        p->at[i] = NULL;
        p->maker[i] = SX_MODULE_NONE;
    }
    for (uint32_t i = 0; i < p->room_count; i++) {
        p->room[i].tensor = SX_MODULE_NONE;
    }
    for (uint32_t k = 0; k < variant->launch_count; k++) {
        uint32_t index = variant->launch_first + k;
        const sx_module_launch *launch = &module->launch[index];
        if (may_wait(v, index)) {
            uint32_t result = module->arg[launch->arg_first + launch->arg_count - 1];
            p->maker[result] = writers(v, result) == 1 ? index : SX_MODULE_NONE;
        }
    }
}

/* Memory for a tensor: the least that is free, or new, which begins as a pattern. What was in it before is no less
 * wrong. */
static sx_code take_room(sxv_verifier *v, uint32_t tensor)
{
    sxv_places *p = &v->places;
    size_t bytes = (size_t)v->module->tensor[tensor].size;
    uint32_t best = UINT32_MAX;
    bytes = bytes > 0 ? bytes : 1; /* of a tensor without elements */
    for (uint32_t i = 0; i < p->room_count; i++) {
        const sxv_room *room = &p->room[i];
        if (room->tensor == SX_MODULE_NONE && room->bytes >= bytes && room->bytes / 2 <= bytes &&
            (best == UINT32_MAX || room->bytes < p->room[best].bytes)) {
            best = i;
        }
    }
    if (best == UINT32_MAX) {
        void *array = realloc(p->room, (p->room_count + 1) * sizeof(*p->room));
        void *pages = array != NULL ? sxr_pages(bytes) : NULL;
        p->room = array != NULL ? array : p->room;
        if (pages == NULL) {
            return SX_FAIL(v->cx, SX_NOMEM, "no memory for a tensor of %zu bytes", bytes);
        }
        best = p->room_count++;
        p->room[best] = (sxv_room){pages, bytes, SX_MODULE_NONE};
        sxr_pool_run(v->pool, sxv_write_pattern, pages, (int64_t)bytes);
    }
    p->room[best].tensor = tensor;
    p->at[tensor] = p->room[best].memory;
    return SX_OK;
}

/* What nobody needs any more is given back. */
static void give_rooms(sxv_verifier *v)
{
    sxv_places *p = &v->places;
    for (uint32_t i = 0; i < p->room_count; i++) {
        uint32_t tensor = p->room[i].tensor;
        if (tensor != SX_MODULE_NONE && p->left[tensor] == 0) {
            p->at[tensor] = NULL;
            p->room[i].tensor = SX_MODULE_NONE;
        }
    }
}

typedef sx_code (*launch_work)(sxv_verifier *v, uint32_t launch);

static sx_code run_in_turn(sxv_verifier *v, uint32_t index, bool last, launch_work work);

/* What the launch reads and nobody has made so far. Its makers stand before it in the module, or before all that is
 * run, so this ends. */
static sx_code make_arguments(sxv_verifier *v, uint32_t index, launch_work work)
{
    const sx_module_launch *launch = &v->module->launch[index];
    const sxv_places *p = &v->places;
    for (uint32_t a = 0; a < launch->arg_count; a++) {
        uint32_t tensor = v->module->arg[launch->arg_first + a];
        uint32_t maker = p->maker[tensor];
        if (maker != SX_MODULE_NONE && maker != index && p->at[tensor] == NULL) {
            SX_ASSERT(v->module->launch[maker].prologue == 1);
            SX_TRY(run_in_turn(v, maker, true, work));
        }
    }
    return SX_OK;
}

/* It reads nothing any more: not in another round either. */
static void end_reading(sxv_verifier *v, uint32_t index)
{
    count_readers(v, index, v->places.left, -1);
    give_rooms(v);
}

/* A launch, and before it those that make what it reads. Not `last`: loops run it again. */
static sx_code run_in_turn(sxv_verifier *v, uint32_t index, bool last, launch_work work)
{
    const sx_module_launch *launch = &v->module->launch[index];
    const sxv_places *p = &v->places;
    SX_TRY(make_arguments(v, index, work));
    uint32_t result =
        launch->arg_count > 0 ? v->module->arg[launch->arg_first + launch->arg_count - 1] : 0;
    if (launch->arg_count > 0 && p->maker[result] == index) {
        SX_TRY(take_room(v, result));
    }
    SX_TRY(work(v, index));
    if (last) {
        end_reading(v, index);
    }
    return SX_OK;
}

/* What a while may do before it counts as one that does not end: launches, and elements of results. */
#define ENDLESS_WORK 1e8
#define LAUNCH_WORK 1e3
/* Rounds of a while that asks what was not computed. */
#define GUESSED_ROUNDS 2u

/* Is the tensor not what the program gives? A kernel of which the emulator ran a part, or that somebody visits, leaves
 * random elements. */
static bool is_guess(const sxv_verifier *v)
{
    return v->replaced || v->visit.launch != NULL;
}

/* What a branch or a while asks may wait for a reader, too. `done`: the work of rounds so far. */
static sx_code answer(sxv_verifier *v, uint32_t index, sxr_walk *walk, double done,
                      launch_work work)
{
    const sx_module_launch *launch = &v->module->launch[index];
    bool last = sxr_walk_is_last(v->program, walk);
    SX_TRY(make_arguments(v, index, work));
    const uint8_t *memory = sxv_memory(v, v->module->arg[launch->arg_first]);
    bool truth = *memory != 0, asks = launch->kind == SX_LAUNCH_WHILE;
    SX_ASSERT(launch->arg_count == 1 && walk->depth > 0);
    v->ran[index] |= truth ? SXV_RAN : SXV_LEFT;
    if (asks && is_guess(v) && walk->open[walk->depth - 1].round >= GUESSED_ROUNDS) {
        truth = false;
    }
    v->endless = asks && truth && done > ENDLESS_WORK;
    if (v->endless) {
        return SX_FAIL(v->cx, SX_LIMIT, "while: it goes on and on on random inputs");
    }
    sx_code code = sxr_walk_answer(v->cx, v->program, walk, truth);
    v->beyond = code == SX_LIMIT;
    if (code == SX_OK && last) {
        end_reading(v, index);
    }
    return code;
}

/* What a launch counts towards a while that does not end. */
static double work_of(const sxv_verifier *v, const sx_module_launch *launch)
{
    uint32_t last = launch->arg_first + launch->arg_count - 1;
    const sx_module_tensor *result =
        launch->arg_count > 0 ? &v->module->tensor[v->module->arg[last]] : NULL;
    return LAUNCH_WORK +
           (result != NULL ? (double)result->size / (double)result->element_bytes : 0);
}

static sx_code walk_phase(sxv_verifier *v, uint32_t phase, launch_work work)
{
    const sx_module *module = v->module;
    const sxv_places *p = &v->places;
    sxr_walk walk = {0};
    uint32_t index;
    double done = 0; /* inside of whiles and loops */
    sxr_walk_event event;
    while ((event = sxr_walk_next(v->program, phase, &walk, &index)) != SXR_WALK_END) {
        const sx_module_launch *launch = &module->launch[index];
        const uint32_t *arg = module->arg + launch->arg_first;
        done += walk.depth > 0 ? work_of(v, launch) : 0;
        if (event == SXR_WALK_ASK) {
            SX_TRY(answer(v, index, &walk, done, work));
            continue;
        }
        if (event == SXR_WALK_ROUND) {
            if (launch->arg_count == 1) {
                memcpy(sxv_memory(v, arg[0]), &walk.open[walk.depth - 1].round, 8);
            }
            continue;
        }
        bool waits = launch->arg_count > 0 && p->maker[arg[launch->arg_count - 1]] == index;
        if (!waits) {
            bool last = sxr_walk_is_last(v->program, &walk);
            v->ran[index] = SXV_RAN;
            SX_TRY(run_in_turn(v, index, last, work));
        }
    }
    return SX_OK;
}

sx_code sxv_each_launch(sxv_verifier *v, launch_work work)
{
    const sx_module *module = v->module;
    const sx_module_variant *variant = &module->variant[v->variant];
    sxv_places *p = &v->places;
    sx_code code = SX_OK;
    v->beyond = v->endless = false;
    memset(p->left, 0, (size_t)module->tensor_count * sizeof(*p->left));
    for (uint32_t k = 0; k < variant->launch_count; k++) {
        count_readers(v, variant->launch_first + k, p->left, 1);
    }
    for (uint32_t phase = 2; code == SX_OK && phase-- > 0;) { /* prologue, then run */
        code = walk_phase(v, phase, work);
    }
    /* What waited for launches that were not run, or of which nobody knew that they were the last. */
    memset(p->left, 0, (size_t)module->tensor_count * sizeof(*p->left));
    give_rooms(v);
    return code;
}
