#include "worker/strategy/variable_lookup.h"

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/catch_exceptions.h"
#include "common/errors.h"
#include "common/status.h"
#include "worker/ops/tensor_math.h"

namespace cairn {
namespace {

// Collects distinct ids and gives each its position among them.
class DistinctIds {
 public:
  int64_t Place(int64_t id) {
    const auto [entry, added] = place_.emplace(id, static_cast<int64_t>(ids_.size()));
    if (added) ids_.push_back(id);
    return entry->second;
  }
  const std::vector<int64_t>& ids() const { return ids_; }

 private:
  absl::flat_hash_map<int64_t, int64_t> place_;
  std::vector<int64_t> ids_;
};

}  // namespace

absl::StatusOr<Tensor> EmbeddingLookup(Variable& table, absl::Span<const int64_t> ids) {
  DistinctIds distinct;
  std::vector<int64_t> places;
  places.reserve(ids.size());
  for (const int64_t id : ids) places.push_back(distinct.Place(id));
  ASSIGN_OR_RETURN(Tensor rows, table.ReadRows(distinct.ids()));
  // No repeats: the positions are 0, 1, 2, …
  if (distinct.ids().size() == ids.size()) return rows;
  return TakeRows(rows, places);
}

absl::StatusOr<Tensor> EmbeddingLookupSparse(Variable& table, const SparseIds& input,
                                             const LookupOptions& options) {
  if (table.dtype() != DType::kFloat32 || table.shape().size() != 2) {
    return InvalidArgument("EmbeddingLookupSparse in variable \"", table.name(), "\": found ",
                           DTypeName(table.dtype()), " ", ShapeText(table.shape()),
                           ", expected float32 [rows, width]");
  }
  const int64_t width = table.shape()[1];
  const std::string called = absl::StrCat("lookup in variable \"", table.name(), "\"");
  RETURN_IF_ERROR(Annotate(CheckLookupRows(input.rows), called));
  RETURN_IF_ERROR(Annotate(ElementCount({input.rows, width}).status(), called));
  DistinctIds distinct;
  std::vector<int64_t> places;
  places.reserve(input.ids.size());
  for (const int64_t id : input.ids) {
    // A safe lookup drops negative ids; they are not rows to read.
    places.push_back(options.safe && id < 0 ? -1 : distinct.Place(id));
  }
  LookupOptions placed = options;
  if (options.safe && options.default_id >= 0) {
    placed.default_id = distinct.Place(options.default_id);
  }
  ASSIGN_OR_RETURN(const Tensor read, table.ReadRows(distinct.ids()));
  ASSIGN_OR_RETURN(const Tensor rows, HostTensor(read));
  SparseIds local = input;
  local.ids = places;
  ASSIGN_OR_RETURN(Tensor out, CatchExceptions(called, [&]() -> absl::StatusOr<Tensor> {
                     return Tensor::Uninitialized(DType::kFloat32, {input.rows, width});
                   }));
  RETURN_IF_ERROR(Annotate(EmbeddingLookupSparse(rows.values<float>(), width, local, placed,
                                                 out.mutable_values<float>()),
                           called));
  if (read.device().is_cpu()) return out;
  return CopyTensor(out, read.device());
}

}  // namespace cairn
