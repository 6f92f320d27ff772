// Arguments and results of replica functions: numbers, tensors, variables, and structures of these,
// shared by all replicas or with one value for each.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/tensor.h"

namespace cairn {

class Value;
class Variable;
using VariablePtr = std::shared_ptr<Variable>;

// Rows of a larger tensor: row i of `values` belongs at indices[i]. Rows may repeat; a sum of
// slices is their concatenation.
struct IndexedSlices {
  Tensor indices = {};  // int64 [n]
  Tensor values = {};   // [n, …]
};

// A value, cheap to copy: tensors and structures are shared.
//
// A *distributed* value has one component for each local replica: kPerReplica components may
// differ, kMirrored ones are equal by contract. A replica function gets its own component of a
// distributed argument. Lists, tuples and dicts may hold any values.
//
// Thread safety: as for an int.
class Value {
 public:
  enum class Kind {
    kNone,
    kInteger,
    kNumber,
    kText,
    kArray,
    kTensor,
    kSlices,
    kVariable,
    kPerReplica,
    kMirrored,
    kList,
    kTuple,
    kDict,
  };
  using Sequence = std::vector<Value>;
  using Dict = absl::btree_map<std::string, Value>;

  Value() : Value(Kind::kNone, std::monostate()) {}
  Value(const Value&) = default;
  Value& operator=(const Value&) = default;
  // The moved-from value is none.
  Value(Value&& other) noexcept
      : kind_(std::exchange(other.kind_, Kind::kNone)),
        content_(std::exchange(other.content_, std::monostate())) {}
  Value& operator=(Value&& other) noexcept {
    kind_ = std::exchange(other.kind_, Kind::kNone);
    content_ = std::exchange(other.content_, std::monostate());
    return *this;
  }
  ~Value() = default;
  // Host numbers. A number that is equal on all replicas is one value, not one for each.
  Value(int number) : Value(Kind::kInteger, int64_t{number}) {}       // NOLINT
  Value(int64_t number) : Value(Kind::kInteger, number) {}            // NOLINT
  Value(double number) : Value(Kind::kNumber, number) {}              // NOLINT
  Value(const char* text) : Value(Kind::kText, std::string(text)) {}  // NOLINT
  Value(std::string text) : Value(Kind::kText, std::move(text)) {}    // NOLINT
  // An array of host numbers; the rules for host numbers apply.
  Value(const std::vector<float>& numbers)  // NOLINT
      : Value(Kind::kArray, Tensor::Vector<float>(numbers)) {}
  Value(Tensor tensor) : Value(Kind::kTensor, std::move(tensor)) {}             // NOLINT
  Value(IndexedSlices slices) : Value(Kind::kSlices, std::move(slices)) {}      // NOLINT
  Value(VariablePtr variable) : Value(Kind::kVariable, std::move(variable)) {}  // NOLINT
  static Value PerReplica(Sequence components) {
    return {Kind::kPerReplica, Share(std::move(components))};
  }
  static Value Mirrored(Sequence components) {
    return {Kind::kMirrored, Share(std::move(components))};
  }
  static Value List(Sequence items) { return {Kind::kList, Share(std::move(items))}; }
  static Value Tuple(Sequence items) { return {Kind::kTuple, Share(std::move(items))}; }
  static Value OfDict(Dict items) { return {Kind::kDict, Share(std::move(items))}; }

  Kind kind() const { return kind_; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_tensor() const { return kind_ == Kind::kTensor; }
  bool is_variable() const { return kind_ == Kind::kVariable; }
  bool is_host_number() const { return kind_ == Kind::kInteger || kind_ == Kind::kNumber; }
  bool is_distributed() const { return kind_ == Kind::kPerReplica || kind_ == Kind::kMirrored; }
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }

  // Accessors for the value of each kind(). Called for another kind, they throw a
  // std::bad_variant_access whose what() names both kinds; Strategy::Run and the other callers of
  // functions turn it into kUnknown.
  int64_t integer() const { return Get<int64_t>("an integer"); }
  // kInteger or kNumber.
  double number() const;
  const std::string& text() const { return Get<std::string>("a text"); }
  const Tensor& tensor() const { return Get<Tensor>("a tensor"); }
  const Tensor& array() const { return Get<Tensor>("an array"); }
  const IndexedSlices& slices() const { return Get<IndexedSlices>("IndexedSlices"); }
  const VariablePtr& variable() const { return Get<VariablePtr>("a variable"); }
  // For kPerReplica, kMirrored, kList and kTuple.
  const Sequence& items() const { return *Get<SharedSequence>("components or items"); }
  const Dict& dict() const { return *Get<SharedDict>("a dict"); }

  // The value as a tensor: a tensor itself, a host number (float32; int32, or int64 where it does
  // not fit), a variable's value as read in this context, or, in a replica function, the component
  // of a distributed value.
  // kInvalidArgument for anything else, including a distributed value outside a replica function
  // and a null variable.
  absl::StatusOr<Tensor> ToTensor() const;

  // "PerReplica(float32 [2], float32 [1])": for messages.
  std::string TypeText() const;

 private:
  using SharedSequence = std::shared_ptr<const Sequence>;
  using SharedDict = std::shared_ptr<const Dict>;
  using Content = std::variant<std::monostate, int64_t, double, std::string, Tensor, IndexedSlices,
                               VariablePtr, SharedSequence, SharedDict>;
  static SharedSequence Share(Sequence items) {
    return std::make_shared<const Sequence>(std::move(items));
  }
  static SharedDict Share(Dict items) { return std::make_shared<const Dict>(std::move(items)); }

  template <typename T>
  const T& Get(const char* asked) const {
    if (const T* found = std::get_if<T>(&content_)) return *found;
    ThrowWrongKind(asked);
  }
  [[noreturn]] void ThrowWrongKind(const char* asked) const;

  Value(Kind kind, Content content) : kind_(kind), content_(std::move(content)) {}

  Kind kind_;
  Content content_;
};

// "PerReplica".
absl::string_view KindName(Value::Kind kind);

// Whether both are the same object: equal host numbers or texts, copies of one tensor, or one
// variable. Two separately made tensors of equal content are not the same.
bool IsSameValue(const Value& a, const Value& b);

// kInvalidArgument, with the place, if the structures differ at this level: lists of different
// lengths, dicts with different keys, or a list beside a leaf.
absl::Status CheckAlike(absl::Span<const Value> of_replicas);

// Combines the structures that the replicas returned: leaves that are the same on every replica
// stay one value, components of one variable, in order, become that variable, and other leaves
// become PerReplica. kInvalidArgument: the structures differ; the message says where.
absl::StatusOr<Value> Regroup(absl::Span<const Value> of_replicas);
// As Regroup, but every leaf that is no distributed variable becomes PerReplica.
absl::StatusOr<Value> RegroupAsPerReplica(absl::Span<const Value> of_replicas);

// A structure like `value` with `fn` of each leaf, which may be a distributed value, in its place.
absl::StatusOr<Value> WithLeaves(const Value& value,
                                 absl::FunctionRef<absl::StatusOr<Value>(const Value&)> fn);

// The view of `value` on replica `replica`: each distributed value, also inside structures, is
// replaced by its component. kInvalidArgument: a distributed value with fewer components.
absl::StatusOr<Value> SelectReplica(const Value& value, int32_t replica);
// The view of each of `values`.
absl::StatusOr<Value::Sequence> SelectReplicas(absl::Span<const Value> values, int32_t replica);
// The views of the first `count` replicas, in order.
absl::StatusOr<Value::Sequence> EachReplica(const Value& value, int32_t count);

// The variables of a list that all replicas passed, as Regroup returns it. kInvalidArgument: the
// replicas passed different variables in one place.
absl::StatusOr<std::vector<VariablePtr>> SameVariables(const Value& list);

}  // namespace cairn
