/* parse.c - reads modules of PTX: directives, variables, kernels with their registers and labels. */
#include "core/ptx/reader.h"

#include <string.h>

#define REGISTERS_MAX 1000000
#define VARIABLE_BYTES_MAX (INT64_C(1) << 32)

static bool same_name(sx_span a, const char *b)
{
    return sx_span_is(a, b);
}

/* ---- registers ---- */
static sx_code add_names(sx_ptx_reader *r, sx_ptx_names names)
{
    void *array = r->names;
    if (r->names_count == r->names_capacity) {
        SX_TRY(sx_grow(r->cx, &array, &r->names_capacity, r->names_count + 1, sizeof(names)));
        r->names = array;
    }
    names.scope = r->scope;
    r->names[r->names_count++] = names;
    return SX_OK;
}

/* The number behind `prefix`, below `count`; -1: none. */
static int64_t number_behind(sx_span name, sx_span prefix, uint32_t count)
{
    if (name.len <= prefix.len || name.len > prefix.len + 9 ||
        memcmp(name.ptr, prefix.ptr, prefix.len) != 0) {
        return -1;
    }
    int64_t number = 0;
    for (size_t i = prefix.len; i < name.len; i++) {
        if (name.ptr[i] < '0' || name.ptr[i] > '9') {
            return -1;
        }
        number = number * 10 + (name.ptr[i] - '0');
    }
    bool canonical = name.ptr[prefix.len] != '0' || name.len == prefix.len + 1;
    return canonical && number < count ? number : -1;
}

bool sx_ptx_find_register(const sx_ptx_reader *r, sx_span name, sx_ptx_arg *found)
{
    for (uint32_t i = r->names_count; i-- > 0;) {
        const sx_ptx_names *n = &r->names[i];
        int64_t number = n->count != 0                  ? number_behind(name, n->name, n->count)
                         : sx_span_equal(name, n->name) ? 0
                                                        : -1;
        if (number >= 0) {
            *found = (sx_ptx_arg){
                .kind = SX_PTX_ARG_REGISTER, .form = n->form, .id = n->first + (uint32_t)number};
            return true;
        }
    }
    return false;
}

static sx_code read_type(sx_ptx_reader *r, uint16_t *type)
{
    for (uint32_t m = SX_PTX_TYPE_FIRST; m <= SX_PTX_TYPE_PRED; m++) {
        if (sx_ptx_take(r, sx_ptx_modifier_of((sx_ptx_modifier)m)->text)) {
            *type = (uint16_t)m;
            return SX_OK;
        }
    }
    size_t length = sx_ptx_next_is(r, ".") ? 1 : 0;
    while (length > 0 && r->p + length < r->end &&
           ((r->p[length] >= 'a' && r->p[length] <= 'z') ||
            (r->p[length] >= '0' && r->p[length] <= '9'))) {
        length++;
    }
    return length > 1 ? sx_ptx_outside(r, "the type", (sx_span){r->p, length})
                      : sx_ptx_expected(r, "an element type");
}

/* .reg .b32 %r<8>, x; */
static sx_code read_registers(sx_ptx_reader *r)
{
    uint16_t type = SX_PTX_TYPE_B32;
    SX_TRY(read_type(r, &type));
    uint32_t bytes = sx_ptx_modifier_of((sx_ptx_modifier)type)->value;
    uint8_t form = (uint8_t)sx_ptx_class_of_bytes(bytes);
    do {
        sx_ptx_names names = {.form = form, .first = r->b.kernel->register_count[form]};
        SX_TRY(sx_ptx_need_name(r, &names.name));
        if (sx_ptx_take(r, "<")) {
            SX_TRY(sx_ptx_need_count(r, REGISTERS_MAX, &names.count));
            SX_TRY(sx_ptx_need(r, ">"));
        }
        uint32_t more = names.count == 0 ? 1 : names.count;
        if (more > REGISTERS_MAX - r->b.kernel->register_count[form]) {
            return sx_ptx_expected(r, "fewer registers");
        }
        r->b.kernel->register_count[form] += more;
        SX_TRY(add_names(r, names));
    } while (sx_ptx_take(r, ","));
    return sx_ptx_need(r, ";");
}

/* ---- labels ---- */
sx_code sx_ptx_find_label(sx_ptx_reader *r, sx_span name, sx_ptx_arg *found)
{
    for (uint32_t i = r->labels_count; i-- > 0;) {
        if (r->labels[i].scope == r->scope && sx_span_equal(r->labels[i].name, name)) {
            *found = (sx_ptx_arg){.kind = SX_PTX_ARG_LABEL, .id = r->labels[i].id};
            return SX_OK;
        }
    }
    void *array = r->labels;
    if (r->labels_count == r->labels_capacity) {
        SX_TRY(sx_grow(r->cx, &array, &r->labels_capacity, r->labels_count + 1,
                       sizeof(sx_ptx_label_name)));
        r->labels = array;
    }
    *found = sx_ptx_label(&r->b);
    SX_TRY(r->b.code);
    array = r->same;
    if (found->id >= r->same_capacity) {
        SX_TRY(sx_grow(r->cx, &array, &r->same_capacity, found->id + 1, sizeof(uint32_t)));
        r->same = array;
    }
    r->same[found->id] = found->id;
    r->labels[r->labels_count++] = (sx_ptx_label_name){name, found->id, r->scope, r->line};
    return SX_OK;
}

static bool placed(const sx_ptx_reader *r, uint32_t label)
{
    return r->b.kernel->label[label] != SX_PTX_NOWHERE;
}

/* At the end of braces: names that were not placed within are those of the braces around. */
static sx_code close_scope(sx_ptx_reader *r)
{
    uint32_t inner = r->scope--;
    while (r->names_count > 0 && r->names[r->names_count - 1].scope == inner) {
        r->names_count--;
    }
    uint32_t count = r->labels_count;
    uint32_t first = count;
    while (first > 0 && r->labels[first - 1].scope == inner) {
        first--;
    }
    r->labels_count = first;
    for (uint32_t i = first; i < count; i++) {
        sx_ptx_label_name label = r->labels[i];
        if (!placed(r, label.id)) {
            if (inner == 1) {
                return SX_FAIL(r->cx, SX_INPUT, "PTX line %u: label '%.*s' is nowhere", label.line,
                               (int)label.name.len, (const char *)label.name.ptr);
            }
            sx_ptx_arg outer;
            SX_TRY(sx_ptx_find_label(r, label.name, &outer));
            r->same[label.id] = outer.id;
        }
    }
    return SX_OK;
}

/* Gives every label argument the label that it is, and forgets the others. */
static sx_code settle_labels(sx_ptx_reader *r)
{
    sx_ptx_kernel *k = r->b.kernel;
    uint32_t *number = SX_NEW_ARRAY(r->cx, uint32_t, k->label_count + 1);
    if (number == NULL) {
        return r->cx->error.code;
    }
    uint32_t kept = 0;
    for (uint32_t l = 0; l < k->label_count; l++) {
        number[l] = kept;
        if (r->same[l] == l) {
            k->label[kept++] = k->label[l];
        }
    }
    for (uint32_t a = 0; a < k->arg_count; a++) {
        if (k->arg[a].kind == SX_PTX_ARG_LABEL) {
            uint32_t label = k->arg[a].id;
            while (r->same[label] != label) {
                label = r->same[label];
            }
            k->arg[a].id = number[label];
        }
    }
    k->label_count = kept;
    return SX_OK;
}

/* ---- variables ---- */
bool sx_ptx_find_symbol(const sx_ptx_reader *r, sx_span name, sx_ptx_arg *found)
{
    const sx_ptx_kernel *k = r->b.kernel;
    const struct {
        const sx_ptx_variable *variable;
        uint32_t count;
    } list[] = {{k->parameter, k->parameter_count},
                {k->variable, k->variable_count},
                {r->module->variable, r->module->variable_count}};
    for (uint32_t l = 0; l < SX_COUNT(list); l++) {
        for (uint32_t v = 0; v < list[l].count; v++) {
            if (same_name(name, list[l].variable[v].name)) {
                *found = (sx_ptx_arg){.kind = SX_PTX_ARG_SYMBOL, .form = (uint8_t)l, .id = v};
                return true;
            }
        }
    }
    return false;
}

/* { 1, 2, 3 } or 1: the bytes of the first elements. */
static sx_code read_initial(sx_ptx_reader *r, sx_ptx_variable *variable)
{
    uint32_t bytes = sx_ptx_modifier_of((sx_ptx_modifier)variable->type)->value;
    uint8_t *initial = sx_alloc(r->cx, (size_t)sx_ptx_variable_bytes(variable));
    if (initial == NULL) {
        return r->cx->error.code;
    }
    size_t at = 0;
    bool list = sx_ptx_take(r, "{");
    do {
        sx_ptx_arg number;
        SX_TRY(sx_ptx_need_number(r, &number));
        if (at + bytes > sx_ptx_variable_bytes(variable)) {
            return sx_ptx_expected(r, "no more elements than the variable has");
        }
        for (uint32_t b = 0; b < bytes; b++) {
            initial[at++] = (uint8_t)((uint64_t)number.value >> (8 * b));
        }
    } while (list && sx_ptx_take(r, ","));
    variable->initial = (sx_span){initial, at};
    return list ? sx_ptx_need(r, "}") : SX_OK;
}

/* .ptr .global .align 16: what a pointer points to; nothing is made of it. */
static sx_code skip_pointed(sx_ptx_reader *r)
{
    if (!sx_ptx_take(r, ".ptr")) {
        return SX_OK;
    }
    for (uint32_t m = SX_PTX_SPACE_FIRST; m <= SX_PTX_SPACE_SHARED; m++) {
        if (sx_ptx_take(r, sx_ptx_modifier_of((sx_ptx_modifier)m)->text)) {
            break;
        }
    }
    int64_t align;
    return sx_ptx_take(r, ".align") ? sx_ptx_need_integer(r, &align) : SX_OK;
}

/* .align 16 .b8 name[64], behind the space. */
static sx_code read_variable(sx_ptx_reader *r, uint16_t space, bool external,
                             sx_ptx_variable *variable)
{
    *variable = (sx_ptx_variable){.space = space, .count = 1, .external = external};
    if (sx_ptx_take(r, ".align")) {
        SX_TRY(sx_ptx_need_count(r, 1 << 20, &variable->align));
    }
    SX_TRY(read_type(r, &variable->type));
    SX_TRY(skip_pointed(r));
    if (sx_ptx_take(r, ".align")) {
        SX_TRY(sx_ptx_need_count(r, 1 << 20, &variable->align));
    }
    sx_span name;
    SX_TRY(sx_ptx_need_name(r, &name));
    variable->name = sx_alloc_text(r->cx, name);
    if (variable->name == NULL) {
        return r->cx->error.code;
    }
    if (sx_ptx_take(r, "[")) {
        variable->array = true;
        int64_t count = 0;
        if (!sx_ptx_next_is(r, "]")) {
            SX_TRY(sx_ptx_need_integer(r, &count));
        }
        if (count < 0 || count > VARIABLE_BYTES_MAX || (count == 0) != external) {
            return sx_ptx_expected(r, "a number of elements");
        }
        variable->count = (uint64_t)count;
        SX_TRY(sx_ptx_need(r, "]"));
    } else if (external) {
        return sx_ptx_expected(r, "[]");
    }
    return sx_ptx_take(r, "=") ? read_initial(r, variable) : SX_OK;
}

static sx_code add_variable(sx_ptx_reader *r, sx_ptx_variable **list, uint32_t *count,
                            uint32_t *capacity, sx_ptx_variable variable)
{
    void *array = *list;
    if (*count == *capacity) {
        SX_TRY(sx_grow(r->cx, &array, capacity, *count + 1, sizeof(variable)));
        *list = array;
    }
    (*list)[(*count)++] = variable;
    return SX_OK;
}

/* The space of a declaration outside of parameters; 0: none comes next. */
static uint16_t take_space(sx_ptx_reader *r)
{
    static const uint16_t space[] = {SX_PTX_SPACE_GLOBAL, SX_PTX_SPACE_CONST, SX_PTX_SPACE_SHARED,
                                     SX_PTX_SPACE_LOCAL};
    for (uint32_t i = 0; i < SX_COUNT(space); i++) {
        if (sx_ptx_take(r, sx_ptx_modifier_of((sx_ptx_modifier)space[i])->text)) {
            return space[i];
        }
    }
    return 0;
}

/* ---- kernels ---- */
static sx_code skip_pragma(sx_ptx_reader *r)
{
    while (r->p < r->end && *r->p != ';') {
        r->line += *r->p++ == '\n';
    }
    return sx_ptx_need(r, ";");
}

static bool at_label(sx_ptx_reader *r)
{
    sx_ptx_skip(r);
    const uint8_t *p = r->p;
    while (p < r->end && ((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
                          (*p >= '0' && *p <= '9') || *p == '_' || *p == '$')) {
        p++;
    }
    return p > r->p && p < r->end && *p == ':';
}

static sx_code read_label(sx_ptx_reader *r)
{
    sx_span name;
    sx_ptx_arg label;
    SX_TRY(sx_ptx_need_name(r, &name));
    SX_TRY(sx_ptx_find_label(r, name, &label));
    if (placed(r, label.id)) {
        return sx_ptx_expected(r, "a label that does not stand elsewhere");
    }
    sx_ptx_place(&r->b, label);
    return sx_ptx_need(r, ":");
}

static sx_code read_statement(sx_ptx_reader *r)
{
    SX_TRY(sx_spend(r->cx, 1));
    if (sx_ptx_take(r, ".reg")) {
        return read_registers(r);
    }
    if (sx_ptx_take(r, ".pragma") || sx_ptx_take(r, ".loc")) {
        return skip_pragma(r);
    }
    uint16_t space = take_space(r);
    if (space != 0) {
        sx_ptx_kernel *k = r->b.kernel;
        sx_ptx_variable variable;
        SX_TRY(read_variable(r, space, false, &variable));
        SX_TRY(add_variable(r, &k->variable, &k->variable_count, &k->variable_capacity, variable));
        return sx_ptx_need(r, ";");
    }
    return at_label(r) ? read_label(r) : sx_ptx_read_insn(r);
}

static sx_code read_body(sx_ptx_reader *r)
{
    SX_TRY(sx_ptx_need(r, "{"));
    r->scope = 1;
    while (r->scope > 0) {
        if (sx_ptx_take(r, "{")) {
            if (++r->scope > 64) {
                return sx_ptx_expected(r, "fewer braces within braces");
            }
        } else if (sx_ptx_take(r, "}")) {
            SX_TRY(close_scope(r));
        } else {
            SX_TRY(read_statement(r));
        }
    }
    return settle_labels(r);
}

static sx_code read_block(sx_ptx_reader *r, sx_ptx_block *block)
{
    *block = (sx_ptx_block){1, 1, 1};
    SX_TRY(sx_ptx_need_count(r, 65536, &block->x));
    if (sx_ptx_take(r, ",")) {
        SX_TRY(sx_ptx_need_count(r, 65536, &block->y));
    }
    if (sx_ptx_take(r, ",")) {
        SX_TRY(sx_ptx_need_count(r, 65536, &block->z));
    }
    return block->x != 0 && block->y != 0 && block->z != 0 ? SX_OK
                                                           : sx_ptx_expected(r, "extents above 0");
}

static sx_code read_kernel_directives(sx_ptx_reader *r, sx_ptx_kernel *k)
{
    for (;;) {
        if (sx_ptx_take(r, ".reqntid")) {
            SX_TRY(read_block(r, &k->required));
        } else if (sx_ptx_take(r, ".maxntid")) {
            SX_TRY(read_block(r, &k->maximum));
        } else if (sx_ptx_take(r, ".reqnctapercluster")) {
            SX_TRY(read_block(r, &k->cluster));
        } else if (sx_ptx_take(r, ".explicitcluster")) {
            k->explicit_cluster = true;
        } else if (sx_ptx_take(r, ".minnctapersm")) {
            SX_TRY(sx_ptx_need_count(r, 1024, &k->least_blocks));
        } else if (sx_ptx_take(r, ".maxnreg")) {
            SX_TRY(sx_ptx_need_count(r, 255, &k->most_registers));
        } else if (!sx_ptx_take(r, ".noreturn")) {
            return SX_OK;
        }
    }
}

static sx_code read_kernel(sx_ptx_reader *r)
{
    sx_span name;
    SX_TRY(sx_ptx_need_name(r, &name));
    char *text = sx_alloc_text(r->cx, name);
    if (text == NULL) {
        return r->cx->error.code;
    }
    sx_ptx_begin(&r->b, r->cx, r->module, text);
    SX_TRY(r->b.code);
    sx_ptx_kernel *k = r->b.kernel;
    r->names_count = r->labels_count = r->scope = 0;
    if (sx_ptx_take(r, "(") && !sx_ptx_take(r, ")")) {
        do {
            sx_ptx_variable parameter;
            SX_TRY(sx_ptx_need(r, ".param"));
            SX_TRY(read_variable(r, SX_PTX_SPACE_PARAM, false, &parameter));
            SX_TRY(add_variable(r, &k->parameter, &k->parameter_count, &k->parameter_capacity,
                                parameter));
        } while (sx_ptx_take(r, ","));
        SX_TRY(sx_ptx_need(r, ")"));
    }
    SX_TRY(read_kernel_directives(r, k));
    return read_body(r);
}

/* ---- modules ---- */
static sx_code read_head(sx_ptx_reader *r)
{
    uint32_t major;
    uint32_t minor;
    SX_TRY(sx_ptx_need(r, ".version"));
    sx_ptx_skip(r);
    const uint8_t *start = r->p;
    bool form = r->end - r->p >= 3 && start[0] >= '1' && start[0] <= '9' && start[1] == '.' &&
                start[2] >= '0' && start[2] <= '9';
    if (!form) {
        return sx_ptx_expected(r, "a version such as 8.0");
    }
    major = (uint32_t)start[0] - '0';
    minor = (uint32_t)start[2] - '0';
    r->p += 3;
    SX_TRY(sx_ptx_need(r, ".target"));
    sx_span name;
    SX_TRY(sx_ptx_need_name(r, &name));
    uint32_t target = 0;
    size_t at = 3;
    bool sm = name.len > 3 && memcmp(name.ptr, "sm_", 3) == 0;
    for (; sm && at < name.len && at < 7 && name.ptr[at] >= '0' && name.ptr[at] <= '9'; at++) {
        target = target * 10 + (uint32_t)(name.ptr[at] - '0');
    }
    char feature = sm && at + 1 == name.len ? (char)name.ptr[at] : 0;
    if (!sm || (at != name.len && at + 1 != name.len)) {
        return sx_ptx_expected(r, "a target such as sm_80 or sm_90a before this");
    }
    SX_TRY(sx_ptx_module_make(r->cx, target, feature, &r->module));
    r->module->version = (uint16_t)(major * 10 + minor);
    SX_TRY(sx_ptx_need(r, ".address_size"));
    return sx_ptx_need(r, "64");
}

static sx_code read_top(sx_ptx_reader *r)
{
    bool external = sx_ptx_take(r, ".extern");
    if (!external && !sx_ptx_take(r, ".visible")) {
        (void)sx_ptx_take(r, ".weak");
    }
    if (sx_ptx_take(r, ".entry")) {
        return read_kernel(r);
    }
    uint16_t space = take_space(r);
    if (space == 0) {
        sx_ptx_skip(r);
        const uint8_t *word = r->p;
        while (r->p<r->end && * r->p> ' ') {
            r->p++;
        }
        return sx_ptx_outside(r, "the directive", (sx_span){word, (size_t)(r->p - word)});
    }
    sx_ptx_variable variable;
    SX_TRY(read_variable(r, space, external, &variable));
    SX_TRY(add_variable(r, &r->module->variable, &r->module->variable_count,
                        &r->module->variable_capacity, variable));
    return sx_ptx_need(r, ";");
}

sx_code sx_ptx_parse(sx_ctx *cx, sx_span text, sx_ptx_module **module)
{
    SX_ASSERT(cx != NULL && module != NULL && (text.ptr != NULL || text.len == 0));
    static const uint8_t nothing[1];
    const uint8_t *start = text.ptr != NULL ? text.ptr : nothing;
    sx_ptx_reader r = {.cx = cx, .p = start, .end = start + text.len, .line = 1};
    SX_TRY(read_head(&r));
    sx_ptx_kernel none = {.name = ""};
    r.b = (sx_ptx_builder){.cx = cx, .module = r.module, .kernel = &none};
    for (sx_ptx_skip(&r); r.p < r.end; sx_ptx_skip(&r)) {
        SX_TRY(read_top(&r));
    }
    SX_TRY(sx_ptx_check(cx, r.module));
    *module = r.module;
    return SX_OK;
}
