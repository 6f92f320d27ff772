// Rows of a table by position: embedding lookup and its gradient.
// Thread safety: functions may be called concurrently if no output overlaps another call's memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cairn {

// out[i] = table[positions[i]] for `count` rows of `width` floats; rows of `out` are `out_stride`
// apart. Positions are in range.
void GatherRows(const float* table, size_t width, const int32_t* positions, size_t count,
                float* out, size_t out_stride);

// sums[p] = the sum of rows i of `d_out` with positions[i] == p. Overwrites `sums`: positions are
// numbered by first appearance (0, then at most one more than any before, as KeyIndex does), so the
// first row of each position is stored and later rows are added. Positions below `stored` have been
// stored by earlier calls. Returns `stored` for a call that continues the sums.
int32_t SumRowsByPosition(const float* d_out, size_t d_out_stride, size_t width,
                          const int32_t* positions, size_t count, float* sums, int32_t stored = 0);

// out[i] = a[a_positions[i]] . b[b_positions[i]], rows of `width` floats.
void DotsByPosition(const float* a, const int32_t* a_positions, const float* b,
                    const int32_t* b_positions, size_t width, size_t count, float* out);

// sums[p] = the sum of scale[i] * table[from[i]] over i with to[i] == p; `to` is numbered by first
// appearance, as above. With table = b, from = b's positions, to = a's: the gradient of
// sum(scale * dots) by a.
void SumScaledRowsByPosition(const float* table, const int32_t* from, const float* scale,
                             const int32_t* to, size_t width, size_t count, float* sums);

}  // namespace cairn
