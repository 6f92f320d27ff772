// A fully connected layer, y = x w + b, on OpenBLAS.
//
// OpenBLAS uses one thread in each process unless OPENBLAS_NUM_THREADS or OMP_NUM_THREADS is set.
// Replicas and worker processes already fill the cores, OpenBLAS's threads would spin on them
// between the small products of a step, and sums would be split differently on other machines.
// Thread safety: functions may be called concurrently if no output overlaps another call's memory.
#pragma once

#include <cstdint>
#include <string>

namespace cairn {

// The processor whose kernels OpenBLAS uses, such as "SkylakeX". OPENBLAS_CORETYPE chooses another
// one; by default it is the newest that OpenBLAS knows and this machine has the instructions of.
std::string BlasProcessor();

// Extents are below 2^31 (BLAS counts in 32 bits). Everything is row-major float32. Functions here
// throw std::bad_alloc if the process has no address space for BLAS's buffer of 128 MiB for each
// thread.
struct DenseShape {
  int64_t rows = 0;
  int64_t inputs = 0;
  int64_t outputs = 0;
  int64_t x_stride = 0;  // floats from a row of x (and of d_x) to the next, >= inputs
};

// y [rows, outputs] = x [rows, inputs] w [inputs, outputs] + b [outputs], followed by relu if
// `relu`.
void DenseForward(const DenseShape& shape, const float* x, const float* w, const float* b,
                  bool relu, float* y);

// Gradients of sum(d_y * (x w + b)); d_y [rows, outputs] has relu's derivative already applied.
//   d_x      [rows, d_x_columns], rows x_stride apart: of the first columns of x. May be null.
//   d_w, d_b overwritten. d_b may be null.
void DenseBackward(const DenseShape& shape, const float* x, const float* w, const float* d_y,
                   float* d_x, int64_t d_x_columns, float* d_w, float* d_b);

// y [rows] += x w; x [rows, columns], w [columns].
void AddMatrixTimesVector(const float* x, int64_t rows, int64_t columns, const float* w, float* y);
// d_w [columns] = x^T d_y, overwritten.
void TransposedMatrixTimesVector(const float* x, int64_t rows, int64_t columns, const float* d_y,
                                 float* d_w);

}  // namespace cairn
