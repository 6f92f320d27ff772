#include "tests/fuzz/model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/hash.h"
#include "common/value_format.h"
#include "common/variables/initializer.h"

namespace cairn::fuzz {
namespace {

template <typename T>
T Load(absl::string_view bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

float LoadHalf(DType dtype, absl::string_view bytes, size_t i) {
  const auto bits = Load<uint16_t>(bytes, i);
  return dtype == DType::kFloat16 ? FloatFromFloat16(bits) : FloatFromBFloat16(bits);
}

void StoreHalf(DType dtype, float value, std::string& bytes, size_t i) {
  const uint16_t bits =
      dtype == DType::kFloat16 ? Float16FromFloat(value) : BFloat16FromFloat(value);
  std::memcpy(bytes.data() + i * sizeof(bits), &bits, sizeof(bits));
}

// Calls fn(value, i) for each number of `bytes`, in the type in which sums and updates are
// computed.
template <typename Fn>
void ForEachNumber(DType dtype, absl::string_view bytes, Fn fn) {
  const size_t count = bytes.size() / DTypeBytes(dtype);
  for (size_t i = 0; i < count; ++i) {
    switch (dtype) {
      case DType::kFloat32: fn(Load<float>(bytes, i), i); break;
      case DType::kFloat64: fn(Load<double>(bytes, i), i); break;
      default: fn(LoadHalf(dtype, bytes, i), i); break;
    }
  }
}

template <typename T>
void SubtractAs(double rate, absl::string_view gradient, std::string& value) {
  for (size_t i = 0; i < value.size() / sizeof(T); ++i) {
    const T updated = Load<T>(value, i) - static_cast<T>(rate) * Load<T>(gradient, i);
    std::memcpy(value.data() + i * sizeof(T), &updated, sizeof(T));
  }
}

// value -= rate * gradient.
void Subtract(DType dtype, double rate, absl::string_view gradient, std::string& value) {
  switch (dtype) {
    case DType::kFloat32: return SubtractAs<float>(rate, gradient, value);
    case DType::kFloat64: return SubtractAs<double>(rate, gradient, value);
    default:
      for (size_t i = 0; i < value.size() / 2; ++i) {
        const float product = static_cast<float>(rate) * LoadHalf(dtype, gradient, i);
        StoreHalf(dtype, LoadHalf(dtype, value, i) - product, value, i);
      }
  }
}

// Whether `rate` times the number is exact, as well as the results that follow in any order of
// operations. The sign of a sum of -0 depends on the initial value of the sum.
bool IsPlain(double number) {
  const double size = std::abs(number);
  return (size == 0 && !std::signbit(number)) || (size > 1e-20 && size < 1e20);
}

// The sum of equal ids, in order; unknown to the model if it may be rounded twice.
struct Sum {
  std::string bytes;
  bool plain = true;
};

template <typename T>
void AddTo(absl::string_view from, std::string& sum) {
  for (size_t i = 0; i < sum.size() / sizeof(T); ++i) {
    const T total = Load<T>(sum, i) + Load<T>(from, i);
    std::memcpy(sum.data() + i * sizeof(T), &total, sizeof(T));
  }
}

std::map<int64_t, Sum> SumById(DType dtype, absl::Span<const int64_t> ids, size_t row_bytes,
                               absl::string_view gradient) {
  std::map<int64_t, Sum> sums;
  for (size_t i = 0; i < ids.size(); ++i) {
    const absl::string_view row = gradient.substr(i * row_bytes, row_bytes);
    const auto [at, is_new] = sums.try_emplace(ids[i]);
    Sum& sum = at->second;
    ForEachNumber(dtype, row, [&](auto number, size_t) { sum.plain &= IsPlain(number); });
    if (is_new) {
      sum.bytes = std::string(row);
    } else if (dtype == DType::kFloat32) {
      AddTo<float>(row, sum.bytes);
    } else if (dtype == DType::kFloat64) {
      AddTo<double>(row, sum.bytes);
    } else {
      sum.plain = false;  // halves are summed in float and rounded once
    }
  }
  return sums;
}

Resolved Refuse(Resolved item, std::string why) {
  item.verdict = Verdict::kRefused;
  item.why = std::move(why);
  return item;
}

std::vector<int64_t> IdsOf(const Payload& ids) {
  std::vector<int64_t> list(ids.size() / sizeof(int64_t));
  if (!list.empty()) std::memcpy(list.data(), ids.data(), list.size() * sizeof(int64_t));
  return list;
}

bool IsExact(const VariableSpec& spec, double* rate) {
  const OptimizerConfig& optimizer = spec.optimizer;
  if (optimizer.type == "none") return true;
  if (optimizer.type != "sgd" || optimizer.learning_rate.type != "constant" ||
      optimizer.clipvalue != 0 || optimizer.clipnorm != 0 || !IsFloating(spec.dtype) ||
      !(spec.row_storage == RowStorage())) {
    return false;
  }
  for (const auto& [name, value] : optimizer.arguments) {
    if (value != 0) return false;
  }
  const auto found = optimizer.learning_rate.arguments.find("learning_rate");
  if (found == optimizer.learning_rate.arguments.end()) return false;
  *rate = found->second;
  int exponent = 0;
  return *rate == 0 || (std::frexp(*rate, &exponent) == 0.5 && exponent > -8 && exponent < 8);
}

}  // namespace

bool IsFinite(DType dtype, absl::string_view bytes) {
  bool finite = true;
  ForEachNumber(dtype, bytes, [&](auto number, size_t) { finite &= std::isfinite(number); });
  return finite;
}

bool VariableModel::here(int64_t key) const {
  return spec.bucket_ps[BucketOfKey(key, static_cast<uint32_t>(spec.bucket_ps.size()))] == 0;
}

size_t VariableModel::part_row_bytes(size_t part) const {
  const bool half = spec.dtype == DType::kFloat16 || spec.dtype == DType::kBFloat16;
  const size_t bytes = part > 0 && half ? sizeof(float) : DTypeBytes(spec.dtype);
  return static_cast<size_t>(width) * bytes;
}

std::string VariableModel::initial(int64_t key, size_t part) const {
  std::string bytes(part_row_bytes(part), '\0');
  if (part > 0) return bytes;
  std::vector<float> row(static_cast<size_t>(width));
  InitializeRow(spec.initializer, HashBytes(spec.name), key, absl::MakeSpan(row));
  std::memcpy(bytes.data(), row.data(), bytes.size());
  return bytes;
}

VariableModel MakeVariable(const VariableSpec& spec) {
  VariableModel variable;
  variable.spec = spec;
  uint64_t width = 1;  // wraps if there are no elements
  for (size_t axis = 1; axis < spec.shape.size(); ++axis) {
    width *= static_cast<uint64_t>(spec.shape[axis]);
  }
  variable.width =
      static_cast<int64_t>(variable.embedding() ? static_cast<uint64_t>(spec.shape[0]) : width);
  variable.exact = IsExact(spec, &variable.rate);
  const auto optimizer = Optimizer::Create(spec.optimizer);
  for (const SlotSpec& slot : (*optimizer)->slots()) variable.slots.push_back(slot.name);
  for (size_t i = 0; i < spec.shards.size(); ++i) {
    if (spec.shards[i].ps != 0) continue;
    DenseModel& shard = variable.shards[static_cast<int32_t>(i)];
    shard.first_row = spec.shards[i].first_row;
    shard.rows = spec.shards[i].rows;
    shard.parts.resize(variable.slots.size() + 1);
    for (size_t part = 0; part < shard.parts.size(); ++part) {
      shard.parts[part].resize(static_cast<size_t>(shard.rows) * variable.part_row_bytes(part));
    }
    shard.stale.assign(static_cast<size_t>(shard.rows), true);
  }
  return variable;
}

void ChangeOptimizer(const OptimizerConfig& optimizer, VariableModel& variable) {
  variable.spec.optimizer = optimizer;
  variable.exact = IsExact(variable.spec, &variable.rate);
}

Resolved Model::Resolve(const ItemName& name, const Payload& ids) {
  Resolved item;
  const auto found = variables.find(name.variable);
  if (found == variables.end()) return Refuse(item, "no such variable");
  VariableModel& variable = found->second;
  item.variable = &variable;
  const bool selects = variable.embedding() ? name.selection == wire::Selection::KEYS
                                            : name.selection == wire::Selection::WHOLE ||
                                                  name.selection == wire::Selection::ROWS;
  if (!selects) return Refuse(item, "a selection of the other kind");
  if (!name.slot.empty()) {
    const auto slot = std::find(variable.slots.begin(), variable.slots.end(), name.slot);
    if (slot == variable.slots.end()) return Refuse(item, "no such slot");
    item.part = static_cast<size_t>(slot - variable.slots.begin()) + 1;
  }
  const bool whole = name.selection == wire::Selection::WHOLE;
  if (whole ? !ids.empty() : ids.size() % sizeof(int64_t) != 0) return Refuse(item, "ids");
  if (!whole) item.ids = IdsOf(ids);
  item.rows = static_cast<int64_t>(item.ids.size());
  if (name.map_version != 0 && name.map_version != variable.spec.map_version) {
    item.verdict = Verdict::kUnsure;
  }
  if (variable.embedding()) {
    if (name.shard != 0) return Refuse(item, "a shard of a table");
    for (const int64_t key : item.ids) {
      if (!variable.here(key)) return Refuse(item, "a key of another server");
    }
    return item;
  }
  const auto shard = variable.shards.find(name.shard);
  if (shard == variable.shards.end()) return Refuse(item, "a shard that is not here");
  if (whole) item.rows = shard->second.rows;
  for (const int64_t id : item.ids) {
    if (id < shard->second.first_row || id >= shard->second.first_row + shard->second.rows) {
      return Refuse(item, "a row outside the shard");
    }
  }
  return item;
}

Resolved Model::ResolvePush(const wire::PushItem& item, std::string* decoded) {
  Resolved resolved = Resolve(NameOf(item), item.ids);
  if (resolved.verdict == Verdict::kRefused) return resolved;
  const VariableModel& variable = *resolved.variable;
  const DType dtype = variable.spec.dtype;
  if (variable.spec.optimizer.type == "none" || !IsFloating(dtype)) {
    return Refuse(resolved, "a variable that no push moves");
  }
  if (static_cast<int>(item.dtype) != static_cast<int>(dtype)) return Refuse(resolved, "dtype");
  const size_t bytes = static_cast<size_t>(resolved.rows) * variable.part_row_bytes(0);
  const auto format = static_cast<int32_t>(item.format);
  if (format == 0) {
    if (item.values.size() != bytes) return Refuse(resolved, "the size of the values");
    decoded->assign(reinterpret_cast<const char*>(item.values.data()), item.values.size());
    return resolved;
  }
  const bool whole = item.selection == wire::Selection::WHOLE;
  if (format < 0 || format > 4 || dtype != DType::kFloat32 || (format == 4 && !whole)) {
    return Refuse(resolved, "format");
  }
  std::vector<float> values(bytes / sizeof(float));
  if (!DecodeValues(static_cast<ValueFormat>(format), {item.values.data(), item.values.size()},
                    resolved.rows, variable.width, values.data())
           .ok()) {
    return Refuse(resolved, "values that are not of their format");
  }
  decoded->resize(bytes);
  if (bytes > 0) std::memcpy(decoded->data(), values.data(), bytes);
  return resolved;
}

Resolved Model::ResolveAssign(const wire::AssignItem& item) {
  ItemName name = NameOf(item);
  name.slot = item.slot;
  Resolved resolved = Resolve(name, item.ids);
  if (resolved.verdict == Verdict::kRefused) return resolved;
  const DType dtype = resolved.variable->spec.dtype;
  const bool half = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  const DType expected = resolved.part > 0 && half ? DType::kFloat32 : dtype;
  if (static_cast<int>(item.dtype) != static_cast<int>(expected)) {
    return Refuse(resolved, "dtype");
  }
  const size_t bytes =
      static_cast<size_t>(resolved.rows) * resolved.variable->part_row_bytes(resolved.part);
  if (item.values.size() != bytes) return Refuse(resolved, "the size of the values");
  if (std::set<int64_t>(resolved.ids.begin(), resolved.ids.end()).size() != resolved.ids.size()) {
    return Refuse(resolved, "an id named twice");
  }
  return resolved;
}

Resolved Model::ResolvePull(const wire::PullItem& item) {
  ItemName name = NameOf(item);
  name.slot = item.slot;
  Resolved resolved = Resolve(name, item.ids);
  if (resolved.verdict == Verdict::kRefused) return resolved;
  const auto format = static_cast<int32_t>(item.format);
  const bool plain = format == 0 || (format > 0 && format < 4 && item.slot.empty() &&
                                     resolved.variable->spec.dtype == DType::kFloat32);
  return plain ? resolved : Refuse(resolved, "format");
}

void Model::MarkStale(VariableModel& variable, int32_t shard, absl::Span<const int64_t> ids,
                      bool all) {
  if (variable.embedding()) {
    for (const int64_t key : ids) variable.rows[key].stale = true;
    return;
  }
  DenseModel& dense = variable.shards.at(shard);
  if (all) dense.stale.assign(dense.stale.size(), true);
  for (const int64_t id : ids) dense.stale[static_cast<size_t>(id - dense.first_row)] = true;
}

void Model::ApplyPush(const Resolved& item, int32_t shard, const std::string& gradient) {
  VariableModel& variable = *item.variable;
  ++variable.version_of(shard);
  const DType dtype = variable.spec.dtype;
  const size_t row_bytes = variable.part_row_bytes(0);
  if (!variable.embedding()) {
    DenseModel& dense = variable.shards.at(shard);
    std::vector<int64_t> ids = item.ids;
    const bool whole = ids.empty() && item.rows > 0;
    for (int64_t row = 0; whole && row < item.rows; ++row) ids.push_back(dense.first_row + row);
    if (!variable.exact) {
      return MarkStale(variable, shard, ids,
                       whole || variable.spec.touched_rows == TouchedRows::kAll);
    }
    for (auto& [id, sum] : SumById(dtype, ids, row_bytes, gradient)) {
      const auto row = static_cast<size_t>(id - dense.first_row);
      std::string value = dense.parts[0].substr(row * row_bytes, row_bytes);
      Subtract(dtype, variable.rate, sum.bytes, value);
      dense.parts[0].replace(row * row_bytes, row_bytes, value);
      if (!sum.plain) dense.stale[row] = true;
    }
    return;
  }
  ++ticks;
  for (auto& [key, sum] : SumById(dtype, item.ids, row_bytes, gradient)) {
    const auto found = variable.rows.find(key);
    if (found == variable.rows.end() && !variable.waiting_known) {
      variable.keys_known = false;
      continue;
    }
    if (found == variable.rows.end() && variable.spec.row_rules.admit_after_pushes > 1 &&
        ++variable.waiting[key] < variable.spec.row_rules.admit_after_pushes) {
      continue;
    }
    variable.waiting.erase(key);
    TableRow& row = variable.rows[key];
    row.pushed_at = row.pushed_by = now;
    row.noted_at = 0;
    row.order = ticks;
    const bool is_new = row.parts.empty();
    if (is_new) {
      row.parts.resize(variable.slots.size() + 1);
      for (size_t part = 0; part < row.parts.size(); ++part) {
        row.parts[part] = variable.initial(key, part);
      }
      row.stale = !variable.slots.empty();
    }
    if (!variable.exact || !sum.plain) row.stale = true;
    Subtract(dtype, variable.rate, sum.bytes, row.parts[0]);
  }
}

void Model::ApplyAssign(const Resolved& item, int32_t shard, const Payload& values) {
  VariableModel& variable = *item.variable;
  const size_t row_bytes = variable.part_row_bytes(item.part);
  const absl::string_view bytes(reinterpret_cast<const char*>(values.data()), values.size());
  if (!variable.embedding()) {
    DenseModel& dense = variable.shards.at(shard);
    const bool whole = item.ids.empty() && item.rows > 0;
    if (whole) {
      dense.parts[item.part] = std::string(bytes);
      if (dense.parts.size() == 1) dense.stale.assign(dense.stale.size(), false);
    }
    for (size_t i = 0; i < item.ids.size(); ++i) {
      const auto row = static_cast<size_t>(item.ids[i] - dense.first_row);
      dense.parts[item.part].replace(row * row_bytes, row_bytes,
                                     std::string(bytes.substr(i * row_bytes, row_bytes)));
      if (dense.parts.size() == 1) dense.stale[row] = false;
    }
    return;
  }
  ++ticks;
  for (size_t i = 0; i < item.ids.size(); ++i) {
    const int64_t key = item.ids[i];
    TableRow& row = variable.rows[key];
    variable.waiting.erase(key);
    row.pushed_at = row.pushed_by = now;
    row.noted_at = 0;
    row.order = ticks;
    if (row.parts.empty()) {
      row.parts.resize(variable.slots.size() + 1);
      for (size_t part = 0; part < row.parts.size(); ++part) {
        row.parts[part] = variable.initial(key, part);
      }
      row.stale = !variable.slots.empty();
    }
    row.parts[item.part] = std::string(bytes.substr(i * row_bytes, row_bytes));
    if (!(variable.spec.row_storage == RowStorage())) row.stale = true;
  }
}

}  // namespace cairn::fuzz
