// Kernels for the tests of the interpreter: blocks of a cluster and each other's shared memory, by cooperative groups.
// nvcc makes clusters.ptx of it; tests/core/simt/test_run_nvcc.py says how, and that it is the same.
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

#define BINS 64

// How often each of 128 values occurs: each of two blocks has the bins of half of them. Behind it every block adds what
// the other one counted.
extern "C" __global__ void __cluster_dims__(2, 1, 1) histogram(const int *in, int *out, int count)
{
    __shared__ int bins[BINS];
    cg::cluster_group cluster = cg::this_cluster();
    unsigned rank = cluster.block_rank(), blocks = cluster.num_blocks();
    for (unsigned i = threadIdx.x; i < BINS; i += blockDim.x) {
        bins[i] = 0;
    }
    cluster.sync();
    for (unsigned i = cluster.thread_rank(); i < (unsigned)count; i += cluster.num_threads()) {
        int value = in[i] & (2 * BINS - 1);
        atomicAdd(cluster.map_shared_rank(bins, value / BINS) + value % BINS, 1);
    }
    cluster.sync();
    const int *other = cluster.map_shared_rank(bins, (rank + 1) % blocks);
    for (unsigned i = threadIdx.x; i < BINS; i += blockDim.x) {
        out[(blockIdx.x / blocks * blocks + rank) * BINS + i] = bins[i] * 1000 + other[i];
    }
    cluster.sync();
}

// Sums of rows: the blocks of a cluster, as many as the launch says, share a row and write their parts into the first.
extern "C" __global__ void row_sums(const int *in, int *out, int columns)
{
    __shared__ int part[16];
    __shared__ int own[32];
    cg::cluster_group cluster = cg::this_cluster();
    unsigned rank = cluster.block_rank(), blocks = cluster.num_blocks(), row = blockIdx.x / blocks;
    int sum = 0;
    for (unsigned i = cluster.thread_rank(); i < (unsigned)columns; i += cluster.num_threads()) {
        sum += in[row * columns + i];
    }
    for (int k = 16; k > 0; k /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, k);
    }
    if (threadIdx.x % 32 == 0) {
        own[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    cluster.sync();
    if (threadIdx.x == 0) {
        sum = 0;
        for (unsigned i = 0; i < blockDim.x / 32; i++) {
            sum += own[i];
        }
        *cluster.map_shared_rank(&part[rank], 0) = sum;
    }
    cluster.sync();
    if (rank == 0 && threadIdx.x == 0) {
        sum = 0;
        for (unsigned i = 0; i < blocks; i++) {
            sum += part[i];
        }
        out[row] = sum;
    }
}
