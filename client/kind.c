#include "client/kind.h"

#include <string.h>

/* Formats that people hand to a compiler by mistake; `at` is where their mark stands. */
typedef struct {
    const char *mark;
    uint32_t size, at;
    const char *name;
    const char *hint; /* NULL: of a model of another tool */
} signature;

#define EXPORT_HINT "Export the model to ONNX from the framework that wrote it."
#define NO_HINT ""

static const signature signatures[] = {
    {"SXMODULE", 8, 0, "a compiled module (.sxm)",
     "It is compiled already: symplex-client run, explain, module show."},
    {"PK\x03\x04", 4, 0,
     "a zip archive, as PyTorch (.pt, .pth), Keras (.keras) and NumPy (.npz) write", NULL},
    {"\x80\x02", 2, 0, "a Python pickle, as old PyTorch (.pt, .pth) writes", NULL},
    {"\x80\x03", 2, 0, "a Python pickle", NULL},
    {"\x80\x04", 2, 0, "a Python pickle", NULL},
    {"\x89HDF\r\n", 6, 0, "an HDF5 file, as Keras (.h5) writes", NULL},
    {"TFL3", 4, 4, "a TensorFlow Lite model", NULL},
    {"{\"", 2, 8, "a safetensors file, which holds weights without a program", NULL},
    {"GGUF", 4, 0, "a GGUF file, which holds weights without a program", NULL},
    {"\x93NUMPY", 6, 0, "a NumPy array (.npy)", "Arrays are inputs: run --input NAME=FILE.npy."},
    {"\x89PNG\r\n", 6, 0, "a PNG picture", NO_HINT},
    {"\xff\xd8\xff", 3, 0, "a JPEG picture", NO_HINT},
    {"GIF8", 4, 0, "a GIF picture", NO_HINT},
    {"%PDF", 4, 0, "a PDF document", NO_HINT},
    {"\x1f\x8b", 2, 0, "a gzip archive", "Unpack it first."},
    {"BZh", 3, 0, "a bzip2 archive", "Unpack it first."},
    {"\xfd"
     "7zXZ",
     5, 0, "an xz archive", "Unpack it first."},
    {"\x28\xb5\x2f\xfd", 4, 0, "a zstd archive", "Unpack it first."},
    {"\x7f"
     "ELF",
     4, 0, "a program or library of this system (ELF)", NO_HINT},
    {"SQLite format 3", 15, 0, "an SQLite database", NO_HINT},
    {"version https://git-lfs", 23, 0, "a pointer of Git LFS, not the file itself",
     "Fetch the file: git lfs pull."},
};

/* Marks further in are of binary formats: a text may have their bytes by chance. */
static const signature *find_signature(sx_span head, bool text)
{
    for (uint32_t i = 0; i < SX_COUNT(signatures); i++) {
        const signature *s = &signatures[i];
        bool here = s->at == 0 || !text;
        if (here && head.len >= s->at + s->size &&
            memcmp(head.ptr + s->at, s->mark, s->size) == 0) {
            return s;
        }
    }
    return NULL;
}

/* Behind blanks and comments, whose syntax is that of the text form. */
static sx_span skip_blank(sx_span text)
{
    size_t at = 0;
    while (at < text.len) {
        uint8_t c = text.ptr[at];
        if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
            at++;
        } else if (c == '/' && at + 1 < text.len && text.ptr[at + 1] == '/') {
            while (at < text.len && text.ptr[at] != '\n') {
                at++;
            }
        } else {
            break;
        }
    }
    return (sx_span){text.ptr + at, text.len - at};
}

/* No byte below a space but white space: an ONNX model always has one in its first bytes. */
static bool is_text(sx_span head)
{
    for (size_t i = 0; i < head.len && i < 64; i++) {
        uint8_t c = head.ptr[i];
        if (c < 32 && c != '\n' && c != '\t' && c != '\r') {
            return false;
        }
    }
    return true;
}

/* The first field of a model: a number of ModelProto with its wire type. The reader skips fields that it does
 * not know, so that almost any bytes might be one; what people hand over is told apart here. */
static bool may_be_model(sx_span head)
{
    static const uint8_t numbers[] = {1, 5};                       /* ir_version, model_version */
    static const uint8_t texts[] = {2, 3, 4, 6, 7, 8, 14, 20, 25}; /* names, graph, lists */
    uint32_t tag = head.len > 0 ? head.ptr[0] : 0;
    if (tag >= 128) { /* numbers over 15 take two bytes */
        tag = head.len > 1 ? (tag & 127) | (uint32_t)head.ptr[1] << 7 : 0;
    }
    for (uint32_t i = 0; i < SX_COUNT(numbers); i++) {
        if (tag == (uint32_t)numbers[i] << 3) {
            return true;
        }
    }
    for (uint32_t i = 0; i < SX_COUNT(texts); i++) {
        if (tag == ((uint32_t)texts[i] << 3 | 2)) {
            return true;
        }
    }
    return false;
}

static sx_code refuse(sx_ctx *cx, const char *name, const char *what, const char *hint)
{
    sx_code code = SX_FAIL(cx, SX_INPUT, "%.200s: neither an ONNX model nor a .sx program%s%s",
                           name, what[0] != '\0' ? ", but " : "", what);
    if (hint[0] != '\0') {
        sx_hint(cx, "%s", hint);
    }
    return code;
}

sx_code sxc_kind_of(sx_ctx *cx, const char *name, sx_span head, sxc_kind *kind)
{
    sx_span start = skip_blank(head);
    bool text = is_text(head);
    if (start.len >= 3 && memcmp(start.ptr, "sx ", 3) == 0) {
        *kind = SXC_KIND_TEXT;
        return SX_OK;
    }
    const signature *s = find_signature(head, text);
    if (s != NULL) {
        return refuse(cx, name, s->name, s->hint != NULL ? s->hint : EXPORT_HINT);
    }
    if (text) {
        return refuse(cx, name, "a text that does not begin with \"sx 1\"", NO_HINT);
    }
    *kind = SXC_KIND_ONNX;
    return may_be_model(head) ? SX_OK : refuse(cx, name, "", NO_HINT);
}
