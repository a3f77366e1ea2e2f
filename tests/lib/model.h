/* model.h - a committed ONNX model compiled and made ready to run, for benchmarks and end-to-end tests. */
#ifndef SX_TESTS_LIB_MODEL_H
#define SX_TESTS_LIB_MODEL_H
#include "client/runtime/runtime.h"

/* Imports tests/models/NAME.onnx and prints it as text. Weights are bound by sx_test_model_bind. */
sx_code sx_test_model_text(sx_ctx *cx, const char *name, sx_buf *text);
/* Compiles for `target` with batch bound; `module` gets the file form without weights. */
sx_code sx_test_model_compile(sx_ctx *cx, const char *name, const char *target, int64_t batch,
                              sx_buf *module);
/* Binds the model's weights and seeded random inputs; memory in cx's arena. */
sx_code sx_test_model_bind(sx_ctx *cx, const char *name, sxr_program *program, uint64_t seed);
#endif
