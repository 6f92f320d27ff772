#include "ps_server/jobs/step_mean.h"

#include <algorithm>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/dtype.h"
#include "common/status.h"

namespace cairn {
namespace {

struct Part {
  const wire::PushItem* item = nullptr;
  double weight = 0;
};
using Parts = std::vector<Part>;

DType TypeOf(const wire::PushItem& item) { return static_cast<DType>(item.dtype); }

bool IsWhole(const Part& part) { return part.item->selection == wire::Selection::WHOLE; }

size_t IdsOf(const wire::PushItem& item) { return item.ids.size() / sizeof(int64_t); }

template <typename T>
void AddScaled(const T* from, size_t count, T scale, T* to) {
  for (size_t i = 0; i < count; ++i) to[i] += from[i] * scale;
}

// A sum of elements of a floating-point dtype; float64 values are summed as float64, others as
// float32.
class Sum {
 public:
  Sum(DType dtype, size_t count) : dtype_(dtype) {
    if (dtype == DType::kFloat64) {
      doubles_.assign(count, 0);
    } else {
      floats_.assign(count, 0);
    }
  }

  void Add(const std::byte* from, size_t count, double scale, size_t at) {
    if (dtype_ == DType::kFloat64) {
      AddScaled(reinterpret_cast<const double*>(from), count, scale, doubles_.data() + at);
    } else if (dtype_ == DType::kFloat32) {
      AddScaled(reinterpret_cast<const float*>(from), count, static_cast<float>(scale),
                floats_.data() + at);
    } else {
      scratch_.resize(count);
      ToFloat32(dtype_, from, count, scratch_.data());
      AddScaled(scratch_.data(), count, static_cast<float>(scale), floats_.data() + at);
    }
  }

  Payload Take() const {
    if (dtype_ == DType::kFloat64) {
      return Payload::Copy(doubles_.data(), doubles_.size() * sizeof(double));
    }
    if (dtype_ == DType::kFloat32) {
      return Payload::Copy(floats_.data(), floats_.size() * sizeof(float));
    }
    Payload payload = Payload::Uninitialized(floats_.size() * DTypeBytes(dtype_));
    FromFloat32(dtype_, floats_.data(), floats_.size(), payload.mutable_data());
    return payload;
  }

 private:
  const DType dtype_;
  std::vector<float> floats_;
  std::vector<double> doubles_;
  std::vector<float> scratch_;
};

wire::PushItem ItemLike(const wire::PushItem& item, wire::Selection::type selection) {
  wire::PushItem like;
  like.variable = item.variable;
  like.shard = item.shard;
  like.selection = selection;
  like.dtype = item.dtype;
  return like;
}

wire::PushItem ViewOf(const wire::PushItem& item) {
  wire::PushItem view = ItemLike(item, item.selection);
  view.ids = Payload::View(item.ids.data(), item.ids.size());
  view.values = Payload::View(item.values.data(), item.values.size());
  return view;
}

// Sums parts if at least one is a whole gradient; other parts may be rows.
wire::PushItem SumWhole(const VariableMap& variables, const Parts& parts) {
  const Part& whole = *std::ranges::find_if(parts, IsWhole);
  const DType dtype = TypeOf(*whole.item);
  Sum sum(dtype, whole.item->values.size() / DTypeBytes(dtype));
  for (const Part& part : parts) {
    const size_t elements = part.item->values.size() / DTypeBytes(dtype);
    if (IsWhole(part)) {
      sum.Add(part.item->values.data(), elements, part.weight, 0);
      continue;
    }
    const absl::Span<const int64_t> ids = part.item->ids.As<int64_t>();
    if (ids.empty()) continue;
    const size_t width = elements / ids.size();
    const HostedDense& shard =
        *variables.find(part.item->variable)->second->dense(part.item->shard);
    for (size_t i = 0; i < ids.size(); ++i) {
      sum.Add(part.item->values.data() + i * width * DTypeBytes(dtype), width, part.weight,
              static_cast<size_t>(ids[i] - shard.first_row()) * width);
    }
  }
  wire::PushItem item = ItemLike(*whole.item, wire::Selection::WHOLE);
  item.values = sum.Take();
  return item;
}

// How many parts have a row.
struct Holders {
  const Part* last = nullptr;
  int32_t count = 0;
};
using HoldersByRow = std::unordered_map<int64_t, Holders>;

HoldersByRow HoldersOf(const Parts& parts) {
  HoldersByRow holders;
  for (const Part& part : parts) {
    for (const int64_t id : part.item->ids.As<int64_t>()) {
      Holders& row = holders[id];
      if (row.last != &part) ++row.count;
      row.last = &part;
    }
  }
  return holders;
}

// Concatenates the rows or keys of all parts; the push sums repeats. `holders`: scales each row by
// its number of holders instead of the part's weight.
wire::PushItem JoinRows(const Parts& parts, const HoldersByRow* holders) {
  const DType dtype = TypeOf(*parts[0].item);
  size_t ids_count = 0, elements = 0;
  for (const Part& part : parts) {
    ids_count += IdsOf(*part.item);
    elements += part.item->values.size() / DTypeBytes(dtype);
  }
  wire::PushItem item = ItemLike(*parts[0].item, parts[0].item->selection);
  item.ids = Payload::Uninitialized(ids_count * sizeof(int64_t));
  std::byte* out_ids = item.ids.mutable_data();
  Sum sum(dtype, elements);
  const size_t width = ids_count == 0 ? 0 : elements / ids_count;
  size_t row = 0;
  for (const Part& part : parts) {
    const absl::Span<const int64_t> ids = part.item->ids.As<int64_t>();
    if (ids.empty()) continue;
    std::copy_n(part.item->ids.data(), part.item->ids.size(), out_ids + row * sizeof(int64_t));
    if (holders == nullptr) {
      sum.Add(part.item->values.data(), ids.size() * width, part.weight, row * width);
    } else {
      for (size_t i = 0; i < ids.size(); ++i) {
        sum.Add(part.item->values.data() + i * width * DTypeBytes(dtype), width,
                1.0 / holders->at(ids[i]).count, (row + i) * width);
      }
    }
    row += ids.size();
  }
  item.values = sum.Take();
  return item;
}

wire::PushItem MeanOfParts(const VariableMap& variables, const Parts& parts, SyncMean mean) {
  if (parts.size() == 1 && parts[0].weight == 1) return ViewOf(*parts[0].item);
  if (std::ranges::any_of(parts, IsWhole)) return SumWhole(variables, parts);
  if (mean == SyncMean::kRows) return JoinRows(parts, nullptr);
  const HoldersByRow holders = HoldersOf(parts);
  return JoinRows(parts, &holders);
}

// Upper bound for the memory of sums and holder counts.
int64_t ScratchBytes(const Parts& parts, SyncMean mean) {
  constexpr int64_t kHolderBytes = 64;
  if (parts.size() == 1 && parts[0].weight == 1) return 0;
  int64_t bytes = 0;
  for (const Part& part : parts) {
    // Summed as float32 or wider, then copied.
    const auto values = static_cast<int64_t>(part.item->values.size());
    const auto ids = static_cast<int64_t>(IdsOf(*part.item));
    bytes += 3 * values + ids * static_cast<int64_t>(sizeof(int64_t));
    if (mean == SyncMean::kContributors) bytes += ids * kHolderBytes;
  }
  return bytes;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const ContributionParts>> KeepParts(
    MemoryBudget& budget, absl::string_view server, const std::vector<wire::PushItem>& items,
    absl::Span<const absl::Span<const std::byte>> values) {
  int64_t bytes = sizeof(ContributionParts);
  for (size_t i = 0; i < items.size(); ++i) {
    bytes += static_cast<int64_t>(sizeof(items[i]) + items[i].ids.size() + values[i].size());
  }
  RETURN_IF_ERROR(budget.Acquire(
      bytes, absl::StrCat("a contribution on ", server, ", kept until its step closes,")));
  auto parts = std::make_shared<ContributionParts>();
  parts->hold = MemoryHold(budget, bytes);
  parts->items.reserve(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    wire::PushItem& copy = parts->items.emplace_back(ItemLike(items[i], items[i].selection));
    copy.ids = Payload::Copy(items[i].ids.data(), items[i].ids.size());
    copy.values = Payload::Copy(values[i].data(), values[i].size());
  }
  return parts;
}

absl::StatusOr<StepMean> MeanOf(MemoryBudget& budget, const VariableMap& variables,
                                absl::Span<const PendingContribution> contributions,
                                int64_t rows_elsewhere, SyncMean mean) {
  double rows = static_cast<double>(rows_elsewhere);  // exact below 2^53
  for (const PendingContribution& contribution : contributions) {
    rows += static_cast<double>(contribution.name.rows);
  }
  std::map<std::pair<absl::string_view, int32_t>, Parts> shards;
  for (const PendingContribution& contribution : contributions) {
    const double weight = static_cast<double>(contribution.name.rows) / rows;
    for (const wire::PushItem& item : contribution.parts->items) {
      shards[{item.variable, item.shard}].push_back({&item, weight});
    }
  }
  int64_t bytes = 0;
  for (auto& [shard, parts] : shards) {
    if (mean == SyncMean::kContributors) {
      for (Part& part : parts) part.weight = 1.0 / static_cast<double>(parts.size());
    }
    bytes += ScratchBytes(parts, mean);
  }
  RETURN_IF_ERROR(budget.Acquire(bytes, "the mean of a step"));
  StepMean result;
  result.hold = MemoryHold(budget, bytes);
  result.items.reserve(shards.size());
  for (const auto& [shard, parts] : shards) {
    result.items.push_back(MeanOfParts(variables, parts, mean));
  }
  return result;
}

}  // namespace cairn
