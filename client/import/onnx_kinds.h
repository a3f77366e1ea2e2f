/* onnx_kinds.h - kinds of reductions and of recurrent networks, as arguments of entries in onnx_ops.def. */
#ifndef SX_CLIENT_IMPORT_ONNX_KINDS_H
#define SX_CLIENT_IMPORT_ONNX_KINDS_H

typedef enum {
    SX_OX_SUM,
    SX_OX_PROD,
    SX_OX_MAX,
    SX_OX_MIN,
    SX_OX_MEAN,
    SX_OX_L1,
    SX_OX_L2,
    SX_OX_SUM_SQUARE,
    SX_OX_LOG_SUM,
    SX_OX_LOG_SUM_EXP
} sx_ox_kind;
typedef enum { SX_OX_LSTM, SX_OX_GRU, SX_OX_RNN } sx_ox_recurrent;
#endif
