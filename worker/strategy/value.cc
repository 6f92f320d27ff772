#include "worker/strategy/value.h"

#include <algorithm>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/errors.h"
#include "common/status.h"
#include "worker/strategy/variable.h"

namespace cairn {
namespace {

absl::Status StructuresDiffer(const Value& first, const Value& other, size_t replica) {
  return InvalidArgument("replicas returned different structures: replica 0 ", first.TypeText(),
                         ", replica ", replica, " ", other.TypeText(),
                         "; lists must have one length, dicts one set of keys");
}

Value SequenceOf(Value::Kind kind, Value::Sequence items) {
  return kind == Value::Kind::kList ? Value::List(std::move(items))
                                    : Value::Tuple(std::move(items));
}

// Item `i`, or the value of key `key`, of each replica.
template <typename Take>
std::vector<Value> Column(absl::Span<const Value> of_replicas, const Take& take) {
  std::vector<Value> column;
  for (const Value& value : of_replicas) column.push_back(take(value));
  return column;
}

using RegroupFn = absl::FunctionRef<absl::StatusOr<Value>(absl::Span<const Value>)>;

// A structure like those of the replicas, with `regroup` of each item.
absl::StatusOr<Value> RegroupItems(absl::Span<const Value> of_replicas, RegroupFn regroup) {
  const Value& first = of_replicas[0];
  if (first.is_sequence()) {
    Value::Sequence items;
    for (size_t i = 0; i < first.items().size(); ++i) {
      const auto column = Column(of_replicas, [i](const Value& value) { return value.items()[i]; });
      ASSIGN_OR_RETURN(items.emplace_back(), regroup(column));
    }
    return SequenceOf(first.kind(), std::move(items));
  }
  Value::Dict items;
  for (const auto& entry : first.dict()) {
    const std::string& key = entry.first;
    const auto column =
        Column(of_replicas, [&key](const Value& value) { return value.dict().at(key); });
    ASSIGN_OR_RETURN(items[key], regroup(column));
  }
  return Value::OfDict(std::move(items));
}

bool AreSame(absl::Span<const Value> values) {
  return std::ranges::all_of(
      values, [&values](const Value& value) { return IsSameValue(values[0], value); });
}

// The variable whose component i is replica i's value; null if there is none.
VariablePtr ContainerOf(absl::Span<const Value> of_replicas) {
  if (!of_replicas[0].is_variable() || of_replicas[0].variable() == nullptr) return nullptr;
  VariablePtr container = of_replicas[0].variable()->container();
  if (container == of_replicas[0].variable()) return nullptr;
  const std::vector<VariablePtr> components = container->components();
  const bool all = std::equal(of_replicas.begin(), of_replicas.end(), components.begin(),
                              components.end(), [](const Value& value, const VariablePtr& copy) {
                                return value.is_variable() && value.variable() == copy;
                              });
  return all ? container : nullptr;
}

// Whether the value is a variable with copies, or with one that all replicas write.
bool IsDistributedVariable(const Value& value) {
  if (!value.is_variable() || value.variable() == nullptr) return false;
  return value.variable()->components() != std::vector<VariablePtr>{value.variable()};
}

bool SameKeys(const Value::Dict& a, const Value::Dict& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& x, const auto& y) { return x.first == y.first; });
}

class WrongKind : public std::bad_variant_access {
 public:
  explicit WrongKind(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  const std::string text_;
};

bool IsStructure(const Value& value) {
  return value.is_sequence() || value.kind() == Value::Kind::kDict;
}

}  // namespace

void Value::ThrowWrongKind(const char* asked) const {
  throw WrongKind(absl::StrCat("a Value was asked for ", asked, ", but is ", TypeText(),
                               ": look at its kind() first"));
}

double Value::number() const {
  return kind_ == Kind::kInteger ? static_cast<double>(integer()) : Get<double>("a number");
}

absl::string_view KindName(Value::Kind kind) {
  switch (kind) {
    case Value::Kind::kNone: return "none";
    case Value::Kind::kInteger: return "integer";
    case Value::Kind::kNumber: return "number";
    case Value::Kind::kText: return "text";
    case Value::Kind::kArray: return "array";
    case Value::Kind::kTensor: return "tensor";
    case Value::Kind::kSlices: return "IndexedSlices";
    case Value::Kind::kVariable: return "variable";
    case Value::Kind::kPerReplica: return "PerReplica";
    case Value::Kind::kMirrored: return "Mirrored";
    case Value::Kind::kList: return "list";
    case Value::Kind::kTuple: return "tuple";
    case Value::Kind::kDict: return "dict";
  }
  return "unknown";
}

std::string Value::TypeText() const {
  switch (kind_) {
    case Kind::kInteger: return absl::StrCat("integer ", integer());
    case Kind::kNumber: return absl::StrCat("number ", number());
    case Kind::kArray: return absl::StrCat("array ", array().text());
    case Kind::kTensor: return tensor().TypeText();
    case Kind::kSlices: return absl::StrCat("IndexedSlices of ", slices().values.TypeText());
    case Kind::kVariable:
      if (variable() == nullptr) return "a null variable";
      return absl::StrCat("variable \"", variable()->name(), "\"");
    case Kind::kPerReplica:
    case Kind::kMirrored:
    case Kind::kList:
    case Kind::kTuple:
      return absl::StrCat(KindName(kind_), "(",
                          absl::StrJoin(items(), ", ",
                                        [](std::string* out, const Value& item) {
                                          absl::StrAppend(out, item.TypeText());
                                        }),
                          ")");
    case Kind::kDict:
      return absl::StrCat("dict(",
                          absl::StrJoin(dict(), ", ",
                                        [](std::string* out, const auto& item) {
                                          absl::StrAppend(out, item.first, ": ",
                                                          item.second.TypeText());
                                        }),
                          ")");
    case Kind::kNone:
    case Kind::kText: break;
  }
  return std::string(KindName(kind_));
}

bool IsSameValue(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Value::Kind::kNone: return true;
    case Value::Kind::kInteger: return a.integer() == b.integer();
    case Value::Kind::kNumber: return a.number() == b.number();
    case Value::Kind::kText: return a.text() == b.text();
    case Value::Kind::kArray:
    case Value::Kind::kTensor: return a.tensor().IsSameAs(b.tensor());
    case Value::Kind::kSlices:
      return a.slices().indices.IsSameAs(b.slices().indices) &&
             a.slices().values.IsSameAs(b.slices().values);
    case Value::Kind::kVariable: return a.variable() == b.variable();
    case Value::Kind::kDict: return &a.dict() == &b.dict();
    default: return &a.items() == &b.items();
  }
}

absl::Status CheckAlike(absl::Span<const Value> of_replicas) {
  const Value& first = of_replicas[0];
  for (size_t i = 1; i < of_replicas.size(); ++i) {
    const Value& other = of_replicas[i];
    if (!IsStructure(first) && !IsStructure(other)) continue;
    const bool fits = first.kind() == other.kind() &&
                      (first.is_sequence() ? first.items().size() == other.items().size()
                                           : SameKeys(first.dict(), other.dict()));
    if (!fits) return StructuresDiffer(first, other, i);
  }
  return absl::OkStatus();
}

absl::StatusOr<Value> Regroup(absl::Span<const Value> of_replicas) {
  RETURN_IF_ERROR(CheckAlike(of_replicas));
  if (VariablePtr variable = ContainerOf(of_replicas)) return Value(std::move(variable));
  if (AreSame(of_replicas)) return of_replicas[0];
  if (IsStructure(of_replicas[0])) return RegroupItems(of_replicas, Regroup);
  return Value::PerReplica({of_replicas.begin(), of_replicas.end()});
}

absl::StatusOr<Value> RegroupAsPerReplica(absl::Span<const Value> of_replicas) {
  RETURN_IF_ERROR(CheckAlike(of_replicas));
  if (IsStructure(of_replicas[0])) return RegroupItems(of_replicas, RegroupAsPerReplica);
  if (VariablePtr variable = ContainerOf(of_replicas)) return Value(std::move(variable));
  if (IsDistributedVariable(of_replicas[0]) && AreSame(of_replicas)) return of_replicas[0];
  return Value::PerReplica({of_replicas.begin(), of_replicas.end()});
}

absl::StatusOr<Value> WithLeaves(const Value& value,
                                 absl::FunctionRef<absl::StatusOr<Value>(const Value&)> fn) {
  if (value.is_sequence()) {
    Value::Sequence items;
    for (const Value& item : value.items()) {
      ASSIGN_OR_RETURN(items.emplace_back(), WithLeaves(item, fn));
    }
    return SequenceOf(value.kind(), std::move(items));
  }
  if (value.kind() == Value::Kind::kDict) {
    Value::Dict items;
    for (const auto& [key, item] : value.dict()) {
      ASSIGN_OR_RETURN(items[key], WithLeaves(item, fn));
    }
    return Value::OfDict(std::move(items));
  }
  return fn(value);
}

absl::StatusOr<Value> SelectReplica(const Value& value, int32_t replica) {
  return WithLeaves(value, [replica](const Value& leaf) -> absl::StatusOr<Value> {
    if (!leaf.is_distributed()) return leaf;
    const auto at = static_cast<size_t>(replica);
    if (at < leaf.items().size()) return leaf.items()[at];
    return InvalidArgument(leaf.TypeText(), " has ", leaf.items().size(),
                           " components, none for replica ", replica);
  });
}

absl::StatusOr<Value::Sequence> SelectReplicas(absl::Span<const Value> values, int32_t replica) {
  Value::Sequence selected;
  for (const Value& value : values) {
    ASSIGN_OR_RETURN(selected.emplace_back(), SelectReplica(value, replica));
  }
  return selected;
}

absl::StatusOr<Value::Sequence> EachReplica(const Value& value, int32_t count) {
  Value::Sequence each;
  for (int32_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(each.emplace_back(), SelectReplica(value, i));
  }
  return each;
}

absl::StatusOr<std::vector<VariablePtr>> SameVariables(const Value& list) {
  std::vector<VariablePtr> variables;
  for (const Value& item : list.items()) {
    if (!item.is_variable()) {
      return InvalidArgument("replicas gave different variables in one place (", item.TypeText(),
                             "); all must give the same in the same order");
    }
    variables.push_back(item.variable());
  }
  return variables;
}

}  // namespace cairn
