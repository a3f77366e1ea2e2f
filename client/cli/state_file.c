#include "client/cli/state_file.h"

#include "client/cli/npz.h"
#include "client/file.h"

static sx_span name_of(const sx_module *module, uint32_t tensor)
{
    return sx_module_string(module, module->tensor[tensor].name);
}

uint32_t sxc_state_count(const sx_module *module)
{
    uint32_t count = 0;
    for (uint64_t i = 0; i < module->tensor_count; i++) {
        count += module->tensor[i].place == SX_TENSOR_STATE ? 1 : 0;
    }
    return count;
}

static sx_type type_of(const sxr_program *program, uint32_t tensor)
{
    const sx_module_tensor *record = &sxr_module(program)->tensor[tensor];
    sx_type type = {.dtype = (sx_dtype)record->dtype, .rank = record->rank};
    for (uint32_t d = 0; d < record->rank; d++) {
        type.dim[d] = sx_dim_of(sxr_shape(program, tensor)[d]);
    }
    return type;
}

/* Elements that fit go in; `what` names the member in messages. */
static sx_code load_tensor(sx_ctx *cx, sxr_program *program, uint32_t tensor, const char *path,
                           const sxc_npz_array *member)
{
    sx_span name = name_of(sxr_module(program), tensor);
    sx_type want = type_of(program, tensor);
    sxc_npy array;
    int shown = (int)sx_min_i64((int64_t)name.len, 100);
    if (sxc_npy_parse(cx, path, member->file, &array) != SX_OK ||
        sxc_npy_as(cx, path, want.dtype, &array) != SX_OK) {
        return sx_fail_in(cx, "state %.*s", shown, (const char *)name.ptr);
    }
    if (!sx_type_equal(&array.type, &want)) {
        sx_buf text;
        sx_buf_init(&text, 4096);
        sx_type_print(&array.type, NULL, 0, &text);
        sx_buf_put_text(&text, ", the module has ");
        sx_type_print(&want, NULL, 0, &text);
        sx_code code = SX_FAIL(cx, SX_INPUT, "state %.*s: in %s it is %.*s", shown,
                               (const char *)name.ptr, path, (int)text.len, (const char *)text.ptr);
        sx_buf_fini(&text);
        return code;
    }
    return sxr_state_write(cx, program, tensor, array.bytes.ptr, array.bytes.len);
}

static sx_code refuse_stateless(sx_ctx *cx, const sx_module *module, const char *path)
{
    return sxc_state_count(module) > 0
               ? SX_OK
               : SX_FAIL(cx, SX_INPUT, "%s: the module keeps no state", path);
}

sx_code sxc_state_load(sx_ctx *cx, sxr_program *program, const char *path)
{
    const sx_module *module = sxr_module(program);
    sxc_npz archive;
    SX_TRY(refuse_stateless(cx, module, path));
    SX_TRY(sxc_npz_read(cx, path, &archive));
    for (uint32_t i = 0; i < archive.count; i++) {
        sx_span name = archive.array[i].name;
        if (sxr_find(program, SX_TENSOR_STATE, name) == UINT32_MAX) {
            return SX_FAIL(cx, SX_INPUT, "%s: the module has no state %.*s", path,
                           (int)sx_min_i64((int64_t)name.len, 100), (const char *)name.ptr);
        }
    }
    for (uint32_t i = 0; i < module->tensor_count; i++) {
        if (module->tensor[i].place != SX_TENSOR_STATE) {
            continue;
        }
        sx_span name = name_of(module, i);
        const sxc_npz_array *member = sxc_npz_find(&archive, name);
        if (member == NULL) {
            return SX_FAIL(cx, SX_INPUT, "%s: state %.*s is not in it", path,
                           (int)sx_min_i64((int64_t)name.len, 100), (const char *)name.ptr);
        }
        SX_TRY(load_tensor(cx, program, i, path, member));
    }
    return SX_OK;
}

/* An .npy file of the tensor, in cx's arena. */
static sx_code print_tensor(sx_ctx *cx, const sxr_program *program, uint32_t tensor,
                            sxc_npz_array *member)
{
    size_t size = (size_t)sxr_size(program, tensor);
    uint8_t *elements = sx_alloc(cx, size);
    sx_type type = type_of(program, tensor);
    sx_buf file;
    if (elements == NULL) {
        return cx->error.code;
    }
    SX_TRY(sxr_state_read(cx, program, tensor, elements, size));
    sx_buf_init(&file, size + 4096);
    sx_code code = sxc_npy_print(cx, &type, (sx_span){elements, size}, &file);
    const char *copy = code == SX_OK ? sx_alloc_text(cx, sx_buf_span(&file)) : NULL;
    *member =
        (sxc_npz_array){name_of(sxr_module(program), tensor), {(const uint8_t *)copy, file.len}};
    sx_buf_fini(&file);
    return copy != NULL ? SX_OK : cx->error.code;
}

sx_code sxc_state_save(sx_ctx *cx, const sxr_program *program, const char *path)
{
    const sx_module *module = sxr_module(program);
    SX_TRY(refuse_stateless(cx, module, path));
    sxc_npz archive = {SX_NEW_ARRAY(cx, sxc_npz_array, sxc_state_count(module)), 0};
    if (archive.array == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < module->tensor_count; i++) {
        if (module->tensor[i].place == SX_TENSOR_STATE) {
            SX_TRY(print_tensor(cx, program, i, &archive.array[archive.count++]));
        }
    }
    sx_buf bytes;
    sx_buf_init(&bytes, UINT32_MAX);
    sx_code code = sxc_npz_print(cx, &archive, &bytes);
    code = code == SX_OK ? sxc_write_file(cx, path, sx_buf_span(&bytes)) : code;
    sx_buf_fini(&bytes);
    return code;
}
