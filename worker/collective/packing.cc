#include "worker/collective/packing.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "common/errors.h"
#include "common/status.h"

namespace cairn {

absl::StatusOr<std::vector<std::vector<size_t>>> GroupBySize(absl::Span<const PackItem> items,
                                                             int64_t bytes_per_pack) {
  if (bytes_per_pack < 0) {
    return InvalidArgument("packing by size: bytes_per_pack is ", bytes_per_pack,
                           "; it must be >= 0, and 0 means one pack");
  }
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].elements.value_or(0) >= 0) continue;
    return InvalidArgument("packing by size: item ", i, " has ", *items[i].elements,
                           " elements; a count is >= 0, or absent");
  }
  std::vector<std::vector<size_t>> packs;
  const bool all_known =
      std::ranges::all_of(items, [](const PackItem& item) { return item.elements.has_value(); });
  if (bytes_per_pack == 0 || !all_known) {
    packs.emplace_back(items.size());
    std::iota(packs[0].begin(), packs[0].end(), size_t{0});
    return packs;
  }
  std::vector<size_t> pack;
  int64_t bytes = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    pack.push_back(i);
    bytes += *items[i].elements * static_cast<int64_t>(DTypeBytes(items[i].dtype));
    if (bytes <= bytes_per_pack) continue;
    packs.push_back(std::exchange(pack, {}));
    bytes = 0;
  }
  if (!pack.empty()) packs.push_back(std::move(pack));
  return packs;
}

absl::StatusOr<std::vector<int64_t>> PackSizes(int64_t total, int64_t num_packs) {
  if (num_packs < 1) {
    return InvalidArgument("packing into chunks: num_packs is ", num_packs, "; it must be >= 1");
  }
  if (total < 0) {
    return InvalidArgument("packing into chunks: ", total, " elements; a count is >= 0");
  }
  std::vector<int64_t> sizes(static_cast<size_t>(num_packs), total / num_packs);
  sizes.back() += total % num_packs;
  return sizes;
}

absl::StatusOr<ConcatenatedPacks> ConcatenatedPacks::Make(absl::Span<const ConstBuffer> gradients,
                                                          int64_t num_packs) {
  ConcatenatedPacks packs;
  int64_t total = 0;
  size_t bytes = 0;
  if (!gradients.empty()) packs.dtype_ = gradients[0].dtype;
  for (const ConstBuffer& gradient : gradients) {
    if (gradient.dtype != packs.dtype_) {
      return InvalidArgument("packing into chunks: gradient ", packs.counts_.size(), " is ",
                             DTypeName(gradient.dtype), ", gradient 0 is ", DTypeName(packs.dtype_),
                             "; group gradients by dtype first");
    }
    packs.counts_.push_back(gradient.count);
    total += gradient.count;
    bytes += gradient.bytes();
  }
  ASSIGN_OR_RETURN(packs.sizes_, PackSizes(total, num_packs));
  packs.memory_.resize(bytes);
  char* to = packs.memory_.data();
  for (const ConstBuffer& gradient : gradients) {
    if (gradient.count > 0) std::memcpy(to, gradient.data, gradient.bytes());
    to += gradient.bytes();
  }
  return packs;
}

std::vector<MutableBuffer> ConcatenatedPacks::packs() {
  std::vector<MutableBuffer> packs;
  packs.reserve(sizes_.size());
  char* at = memory_.data();
  for (const int64_t size : sizes_) {
    packs.push_back({dtype_, at, size});
    at += packs.back().bytes();
  }
  return packs;
}

absl::Status ConcatenatedPacks::CopyTo(absl::Span<const MutableBuffer> gradients) const {
  bool same = gradients.size() == counts_.size();
  for (size_t i = 0; same && i < gradients.size(); ++i) {
    same = gradients[i].dtype == dtype_ && gradients[i].count == counts_[i];
  }
  if (!same) {
    return InvalidArgument("unpacking ", counts_.size(), " gradients into ", gradients.size(),
                           ": dtypes and counts must be those that were packed");
  }
  const char* from = memory_.data();
  for (const MutableBuffer& gradient : gradients) {
    if (gradient.count > 0) std::memcpy(gradient.data, from, gradient.bytes());
    from += gradient.bytes();
  }
  return absl::OkStatus();
}

}  // namespace cairn
