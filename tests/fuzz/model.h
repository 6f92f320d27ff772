// A model of one job on one server: a plain reimplementation of the IDL's promises, without
// threads, files or speed. Numbers that the model cannot know it copies from the server, and
// expects them from then on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/variables/variable_spec.h"
#include "thrift/cairn_types.h"

namespace cairn::fuzz {

// Bytes of one row, by part: part 0 is the value, the others are the slots in order.
struct TableRow {
  std::vector<std::string> parts;
  bool stale = true;      // changed in a way that the model does not compute
  int64_t pushed_at = 0;  // the push was at this time of the target's clock, in seconds, or later
  int64_t pushed_by = 0;  // the push was at this time or earlier
  int64_t noted_at = 0;   // when a scan of the row rules last saw the row; 0: never
  int64_t order = 0;      // increases with every update of the table; 0: unknown
};

struct DenseModel {
  int64_t first_row = 0, rows = 0;
  std::vector<std::string> parts;  // whole parts
  std::vector<bool> stale;         // by row
  int64_t version = 0;
};

struct VariableModel {
  VariableSpec spec;
  std::vector<std::string> slots;
  int64_t width = 0;
  bool exact = false;  // the model computes updates: plain SGD, at a rate without rounding
  double rate = 0;

  std::map<int32_t, DenseModel> shards;  // DENSE: the shards on this server, by index
  std::map<int64_t, TableRow> rows;      // EMBEDDING
  std::map<int64_t, int32_t> waiting;    // number of pushes to keys that have no row yet
  bool waiting_known = true;
  bool keys_known = true;  // false: there may be further rows
  int64_t version = 0;     // EMBEDDING

  bool embedding() const { return spec.kind == VariableKind::kEmbedding; }
  bool here(int64_t key) const;
  size_t part_row_bytes(size_t part) const;
  int64_t& version_of(int32_t shard) { return embedding() ? version : shards.at(shard).version; }
  // The initial row of a key without a row.
  std::string initial(int64_t key, size_t part) const;
};

// `spec` as on the server after create_variables; values are not known yet.
VariableModel MakeVariable(const VariableSpec& spec);
// Changes the arguments of the variable's optimizer (MayFollow).
void ChangeOptimizer(const OptimizerConfig& optimizer, VariableModel& variable);

// The names in an item of a push, assign or pull.
struct ItemName {
  enum class Call { kPush, kAssign, kPull } call = Call::kPush;
  std::string variable;
  int32_t shard = 0;
  wire::Selection::type selection = wire::Selection::WHOLE;
  std::string slot;
  int64_t map_version = 0;
  wire::ValueFormat::type format = wire::ValueFormat::PLAIN;
};
template <typename Item>
ItemName NameOf(const Item& item) {
  ItemName name;
  name.variable = item.variable;
  name.shard = item.shard;
  name.selection = item.selection;
  name.map_version = item.map_version;
  return name;
}

enum class Verdict { kAccepted, kRefused, kUnsure };

// The result of resolving an item's names.
struct Resolved {
  Verdict verdict = Verdict::kAccepted;
  std::string why;  // reason of a refusal
  VariableModel* variable = nullptr;
  size_t part = 0;
  std::vector<int64_t> ids;  // ROWS, KEYS
  int64_t rows = 0;
};

struct Worker {
  bool known = false;  // the worker has said hello
  int64_t incarnation = 0;
  int64_t start = 0;              // HelloRequest.start of the last hello
  std::vector<int64_t> replaced;  // starts whose place others have taken, the latest first
  int64_t applied = 0;            // the last sequence with a part on this server
  int64_t through = 0;
  std::string position;
  bool murky = false;      // late parts arrived, so repeated sequences are no longer known
  bool fresh_boot = true;  // it has not named this boot yet

  bool WasReplaced(int64_t number) const {
    return number != 0 && number != start &&
           std::count(replaced.begin(), replaced.end(), number) > 0;
  }
  void NoteStart(int64_t number, bool is_new) {
    constexpr size_t kKnown = 8;  // of HelloRequest.start
    if (is_new && start != 0) replaced.insert(replaced.begin(), start);
    if (replaced.size() > kKnown) replaced.pop_back();
    start = number;
  }
};

class Model {
 public:
  std::map<std::string, VariableModel> variables;
  std::map<int32_t, Worker> workers;
  int64_t now = 0;    // the target's clock
  int64_t ticks = 0;  // number of updates of tables

  Resolved Resolve(const ItemName& name, const Payload& ids);
  // Also checks the values. `decoded`: [rows, width] in the variable's dtype, if accepted.
  Resolved ResolvePush(const wire::PushItem& item, std::string* decoded);
  Resolved ResolveAssign(const wire::AssignItem& item);
  Resolved ResolvePull(const wire::PullItem& item);

  void ApplyPush(const Resolved& item, int32_t shard, const std::string& gradient);
  void ApplyAssign(const Resolved& item, int32_t shard, const Payload& values);
  // Marks rows as changed in an unknown way. No ids: all rows.
  void MarkStale(VariableModel& variable, int32_t shard, absl::Span<const int64_t> ids, bool all);
};

// Whether a gradient may be pushed.
bool IsFinite(DType dtype, absl::string_view bytes);

}  // namespace cairn::fuzz
