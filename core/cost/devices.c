/* devices.c - the table of devices. Values are in the base units of device_fields.def.
 *
 * x86-64: an 8-core share of a server socket, clock under vector load. Vector ports, registers and latency: Intel
 * 64 and IA-32 optimization reference manual (two 256-bit or 512-bit FMA ports, 4 cycles), AMD Zen 3-5
 * optimization guides; L1 two loads of a vector in a cycle, L2 64 bytes a cycle, 48 sustained; L3 what one core
 * streams from the shared level of a mesh (Sapphire Rapids, measured: 21 bytes/ns over 8 MB). Lanes of i32 and i64
 * do one operation where those of f32 do two at once; i64 has half as many, and without AVX-512 no product of its
 * own. Memory: two channels of DDR4-3200 at 80 %.
 *
 * GPUs: vendor data sheets and architecture white papers. Rates are dense; those of tensor cores are the ones that
 * add in f32 (f64, i32), which is what the numerics contract wants, so f16 that adds in f16 is left out. tf32 is no
 * rate of a row: "h100+tf32" has it (device.c).
 * cores are multiprocessors, lanes the threads of a warp, and so many warps start a multiply-add in a cycle that
 * cores x lanes x 2 x boost clock gives their FP32 figure. l1 is the shared memory and L1 of a multiprocessor, l2 the
 * device's second level divided by multiprocessors. Laws of blocks: CUDA C++ programming guide, compute
 * capabilities 8.0, 8.6, 8.9, 9.0, 10.0; a block keeps 1 KiB of its shared memory for the system.
 *
 * generic-sm80 is no machine: its limits are the least of compute capabilities 8.0, 8.6, 8.9 and 9.0 (shared memory,
 * threads and blocks of a multiprocessor, its first level), and what is not a limit is that of the A100. So its modules
 * run wherever the driver takes PTX of sm_80.
 *
 * Latencies in cycles: A100, H100 and RTX 4090 Luo et al. 2024 (arXiv 2402.13499), measured by chasing pointers, and
 * for mma.m16n8k16 also Sun et al. 2023 (arXiv 2206.02874); those of the others are estimates: the RTX 3090 between
 * its neighbours, the B200 more than the H100 for its second die. Between blocks of a cluster: what Luo et al. measured
 * on the network of a H100's multiprocessors, 180 cycles. The share of their rate that tensor cores reach by
 * mma.sync: H100 62 % (Luo et al.: the rest takes wgmma), A100 and RTX 95 % (the instruction at its issue rate, less
 * what feeding it costs: an estimate from Sun et al.), B200 an estimate: the rate of a multiprocessor of the H100.
 * The bandwidth of the second level, 64 bytes/ns for each multiprocessor: A100 5120 bytes a cycle (white paper: 67);
 * for the others an estimate from what matrix kernels on the H100 are fed with, about 8.2 TB/s.
 *
 * Links, one direction: x86-64 a port of 100 Gbit/s Ethernet; GPUs the data sheets' NVLink (half of the figure
 * for both directions: A100 600, H100 and H200 900, B200 1800, RTX 3090 112.5 GB/s; RTX 4090 has none: PCIe
 * 4.0 x16). A step of a collective: the hardware latencies of NCCL's model (src/graph/tuning.cc, tree, LL128):
 * NVLink 1.25 us, PCIe 1.9 us, network 8.5 us.
 *
 * Energy is a model from published figures, not a measurement: a byte of DDR4 160 pJ (Horowitz, ISSCC 2014:
 * 1.3 to 2.6 nJ for 64 bits), of HBM2 31 pJ and GDDR6 60 pJ (O'Connor et al., MICRO 2017: 3.9 pJ and 7.5 pJ a
 * bit); an operation is the board's or the share's power (GPUs: data sheet; 8 server cores: 48 W) over its
 * peak rate. */
#include "core/cost/device.h"

#define SERVER_SHARE                                                                          \
    .program_class = "x86-64", .cores = 8, .fma_per_cycle = 2, .fma_latency = 4,              \
    .l1_bytes = 32768, .l2_bytes = 1048576, .l3_bytes = 33554432, .l3_bytes_per_ns = 20,      \
    .memory_bytes_per_ns = 41, .launch_ns = 1500, .link_bytes_per_ns = 12.5, .link_ns = 8500, \
    .byte_pj = 160

#define WARPS(each)                                                                     \
    .program_class = "nvidia", .lanes = 32, .registers = 255, .fma_per_cycle = (each),  \
    .fma_latency = 4, .launch_ns = 4000, .l2_bytes_per_ns = 64, .register_file = 65536, \
    .register_step = 8, .block_threads = 1024, .matrix_latency = 33
#define LATENCIES(shared, second, memory) \
    .shared_latency = (shared), .l2_latency = (second), .memory_latency = (memory)
#define HBM .byte_pj = 31, .link_ns = 1250
#define SHARED(kib) .shared_bytes = (kib)*1024.0, .shared_block_bytes = ((kib)-1) * 1024.0
#define GA100                                                                         \
    WARPS(2), HBM, LATENCIES(29, 262, 466),                                           \
        .matrix_share = 0.95, .cores = 108, .ghz = 1.41, .l1_bytes_per_ns = 180.48,   \
        .l2_bytes = 388361, .memory_bytes = 80e9, .memory_bytes_per_ns = 2039,        \
        .cluster_blocks = 1, .link_bytes_per_ns = 300, .flop_pj = 20.5,               \
        .rate = {{SX_F64, SX_UNIT_VECTOR, 9700},    {SX_I32, SX_UNIT_VECTOR, 19500},  \
                 {SX_F64, SX_UNIT_TENSOR, 19500},   {SX_F16, SX_UNIT_TENSOR, 312000}, \
                 {SX_BF16, SX_UNIT_TENSOR, 312000}, {SX_I8, SX_UNIT_TENSOR, 624000}}, \
        .rate_count = 6
#define HOPPER                                                                                   \
    WARPS(4), HBM,                                                                               \
        .cores = 132, .ghz = 1.98, .l1_bytes = 262144, .l1_bytes_per_ns = 253.44,                \
        .l2_bytes = 397188, SHARED(228), .core_threads = 2048, .core_blocks = 32,                \
        .cluster_blocks = 8, .link_bytes_per_ns = 450, .flop_pj = 10.4, LATENCIES(29, 263, 479), \
        .cluster_latency = 180, .matrix_share = 0.62, .group_share = 0.88,                       \
        .rate = {{SX_F64, SX_UNIT_VECTOR, 33500},      {SX_I32, SX_UNIT_VECTOR, 33500},          \
                 {SX_F64, SX_UNIT_TENSOR, 66900},      {SX_F16, SX_UNIT_TENSOR, 989400},         \
                 {SX_BF16, SX_UNIT_TENSOR, 989400},    {SX_F8E4M3, SX_UNIT_TENSOR, 1978900},     \
                 {SX_F8E5M2, SX_UNIT_TENSOR, 1978900}, {SX_I8, SX_UNIT_TENSOR, 1978900}},        \
        .rate_count = 8

static const sx_device device_table[] = {
    {.name = "x86-64-v3",
     .text = "any x86-64 with AVX2 and FMA, 8 cores",
     .target = "x86-64-v3",
     SERVER_SHARE,
     .lanes = 8,
     .registers = 16,
     .ghz = 3.0,
     .l1_bytes_per_ns = 192,
     .l2_bytes_per_ns = 144,
     .flop_pj = 63,
     .rate = {{SX_F64, SX_UNIT_VECTOR, 384},
              {SX_I32, SX_UNIT_VECTOR, 384},
              {SX_I64, SX_UNIT_VECTOR, 96}},
     .rate_count = 3},
    {.name = "x86-64-v4",
     .text = "any x86-64 with AVX-512 F, BW, DQ, VL, 8 cores",
     .target = "x86-64-v4",
     SERVER_SHARE,
     .lanes = 16,
     .registers = 32,
     .ghz = 2.6,
     .l1_bytes_per_ns = 332.8,
     .l2_bytes_per_ns = 125,
     .flop_pj = 36,
     .rate = {{SX_F64, SX_UNIT_VECTOR, 665.6},
              {SX_I32, SX_UNIT_VECTOR, 665.6},
              {SX_I64, SX_UNIT_VECTOR, 332.8}},
     .rate_count = 3},
    {.name = "a100",
     .target = "sm_80",
     .text = "NVIDIA A100 80 GB SXM: 108 SM, 19.5 TFLOPS FP32, 2039 GB/s",
     SHARED(164),
     GA100,
     .l1_bytes = 196608,
     .core_threads = 2048,
     .core_blocks = 32},
    {.name = "h100",
     .target = "sm_90",
     .text = "NVIDIA H100 SXM: 132 SM, 67 TFLOPS FP32, 989 TFLOPS BF16, 3352 GB/s",
     HOPPER,
     .memory_bytes = 80e9,
     .memory_bytes_per_ns = 3352},
    {.name = "h200",
     .target = "sm_90",
     .text = "NVIDIA H200 SXM: 132 SM, 67 TFLOPS FP32, 989 TFLOPS BF16, 4800 GB/s",
     HOPPER,
     .memory_bytes = 141e9,
     .memory_bytes_per_ns = 4800},
    {.name = "b200",
     .target = "sm_100",
     .text = "NVIDIA B200: 148 SM, 75 TFLOPS FP32, 2250 TFLOPS BF16, 7700 GB/s",
     WARPS(4),
     HBM,
     SHARED(228),
     LATENCIES(29, 300, 650),
     .matrix_share = 0.3,
     .cores = 148,
     .ghz = 1.98,
     .l1_bytes = 262144,
     .l1_bytes_per_ns = 253.44,
     .l2_bytes = 892688,
     .memory_bytes = 180e9,
     .memory_bytes_per_ns = 7700,
     .core_threads = 2048,
     .core_blocks = 32,
     .cluster_blocks = 8,
     .link_bytes_per_ns = 900,
     .flop_pj = 13.3,
     .rate = {{SX_F64, SX_UNIT_VECTOR, 37000},
              {SX_F16, SX_UNIT_TENSOR, 2250000},
              {SX_BF16, SX_UNIT_TENSOR, 2250000},
              {SX_F8E4M3, SX_UNIT_TENSOR, 4500000},
              {SX_F8E5M2, SX_UNIT_TENSOR, 4500000},
              {SX_I8, SX_UNIT_TENSOR, 4500000}},
     .rate_count = 6},
    {.name = "rtx3090",
     .target = "sm_86",
     .text = "NVIDIA GeForce RTX 3090: 82 SM, 35.6 TFLOPS FP32, 71 TFLOPS BF16, 936 GB/s",
     WARPS(4),
     SHARED(100),
     LATENCIES(30, 262, 500),
     .matrix_share = 0.95,
     .cores = 82,
     .ghz = 1.695,
     .l1_bytes = 131072,
     .l1_bytes_per_ns = 216.96,
     .l2_bytes = 76725,
     .memory_bytes = 24e9,
     .memory_bytes_per_ns = 936,
     .core_threads = 1536,
     .core_blocks = 16,
     .cluster_blocks = 1,
     .link_bytes_per_ns = 56.25,
     .link_ns = 1250,
     .flop_pj = 9.8,
     .byte_pj = 60,
     .rate = {{SX_F64, SX_UNIT_VECTOR, 556},
              {SX_I32, SX_UNIT_VECTOR, 17800},
              {SX_F16, SX_UNIT_TENSOR, 71000},
              {SX_BF16, SX_UNIT_TENSOR, 71000},
              {SX_I8, SX_UNIT_TENSOR, 284000}},
     .rate_count = 5},
    {.name = "rtx4090",
     .target = "sm_89",
     .text = "NVIDIA GeForce RTX 4090: 128 SM, 82.6 TFLOPS FP32, 165 TFLOPS BF16, 1008 GB/s",
     WARPS(4),
     SHARED(100),
     LATENCIES(30, 273, 542),
     .matrix_share = 0.95,
     .cores = 128,
     .ghz = 2.52,
     .l1_bytes = 131072,
     .l1_bytes_per_ns = 322.56,
     .l2_bytes = 589824,
     .memory_bytes = 24e9,
     .memory_bytes_per_ns = 1008,
     .core_threads = 1536,
     .core_blocks = 24,
     .cluster_blocks = 1,
     .link_bytes_per_ns = 32,
     .link_ns = 1900,
     .flop_pj = 5.4,
     .byte_pj = 60,
     .rate = {{SX_F64, SX_UNIT_VECTOR, 1290},
              {SX_I32, SX_UNIT_VECTOR, 41300},
              {SX_F16, SX_UNIT_TENSOR, 165200},
              {SX_BF16, SX_UNIT_TENSOR, 165200},
              {SX_F8E4M3, SX_UNIT_TENSOR, 330300},
              {SX_F8E5M2, SX_UNIT_TENSOR, 330300},
              {SX_I8, SX_UNIT_TENSOR, 660600}},
     .rate_count = 7},
    {.name = "generic-sm80",
     .target = "sm_80",
     .text = "any NVIDIA GPU from compute capability 8.0 on: the limits that all have, priced as "
             "the A100",
     SHARED(100),
     GA100,
     .l1_bytes = 131072,
     .core_threads = 1536,
     .core_blocks = 16},
};

uint32_t sx_device_count(void)
{
    return (uint32_t)SX_COUNT(device_table);
}

const sx_device *sx_device_at(uint32_t index)
{
    SX_ASSERT(index < SX_COUNT(device_table));
    return &device_table[index];
}
