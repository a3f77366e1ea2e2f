/* gen_vision.h - residual convolution networks as program text: shapes alone, every weight is a parameter.
 *
 * The structure is that of ResNet-50 as exporters write it: normalisation is folded into the convolutions,
 * each of which adds a bias. Same options, same text; the batch is symbolic.
 */
#ifndef SX_TESTS_LIB_GEN_VISION_H
#define SX_TESTS_LIB_GEN_VISION_H
#include "core/base/buf.h"

typedef struct {
    uint32_t size;  /* pixels along a side of the image, a multiple of 32 */
    uint32_t width; /* channels of the first convolution; a stage has 4, 8, 16, 32 times as many */
    uint32_t blocks[4]; /* of each stage */
    uint32_t classes;
} sx_resnet;
/* 224 pixels, 64 channels, 3, 4, 6 and 3 blocks, 1000 classes. */
sx_resnet sx_resnet50(void);
void sx_resnet_print(const sx_resnet *options, sx_buf *text);
#endif
