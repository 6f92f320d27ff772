#include "tests/support/optimizer_records.h"

#include <algorithm>
#include <map>
#include <stdexcept>

#include "absl/strings/str_cat.h"

namespace cairn::test {
namespace {

using Json = nlohmann::json;

// Cairn's optimizer for a record's rule, with the arguments that the raw op implies but does not
// list.
struct RuleMapping {
  std::string type;  // "": known, but not offered
  std::map<std::string, double> implied;
};

const RuleMapping& MappingOf(const std::string& rule) {
  static const auto* mappings = new std::map<std::string, RuleMapping>{
      {"sgd", {"sgd", {}}},
      {"sgd_weight_decay", {"sgd", {}}},
      {"momentum_keras", {"sgd", {}}},
      {"adagrad_keras", {"adagrad", {}}},
      {"adadelta", {"adadelta", {}}},
      {"rmsprop", {"rmsprop", {}}},
      {"rmsprop_momentum", {"rmsprop", {}}},
      {"rmsprop_centered", {"rmsprop", {{"centered", 1}}}},
      {"rmsprop_centered_momentum", {"rmsprop", {{"centered", 1}}}},
      {"adam", {"adam", {}}},
      {"amsgrad", {"adam", {{"amsgrad", 1}}}},
      {"adamw", {"adamw", {}}},
      {"adamw_amsgrad", {"adamw", {{"amsgrad", 1}}}},
      {"adamax", {"adamax", {}}},
      {"nadam", {"nadam", {}}},
      {"lazy_adam", {"lazy_adam", {}}},
      {"lion", {"lion", {}}},
      {"ftrl", {"ftrl", {}}},
      // Raw ops whose formula is that of no Keras optimizer.
      {"momentum_raw", {}},
      {"adagrad_raw", {}},
      {"adam_nesterov", {}},
  };
  const auto found = mappings->find(rule);
  if (found == mappings->end()) throw UnknownRecord("no rule '" + rule + "'");
  return found->second;
}

std::string WhyNotOffered(const Json& record) {
  const std::string rule = record.at("rule");
  if (MappingOf(rule).type.empty()) return "rule " + rule;
  const std::string duplicates = record.value("duplicates", "summed");
  if (duplicates == "summed") return "";
  if (duplicates != "squares summed" && duplicates != "one by one") {
    throw UnknownRecord("no duplicates '" + duplicates + "'");
  }
  return "duplicates " + duplicates;
}

ScheduleConfig RatesOf(const std::vector<double>& rates) {
  const bool constant =
      std::all_of(rates.begin(), rates.end(), [&](double rate) { return rate == rates.front(); });
  if (constant) return ConstantRate(rates.front());
  ScheduleConfig schedule;
  schedule.type = "piecewise_constant_decay";
  schedule.values = rates;
  for (size_t i = 0; i + 1 < rates.size(); ++i) {
    schedule.boundaries.push_back(static_cast<double>(i));
  }
  return schedule;
}

OptimizerConfig ConfigOf(const Json& record) {
  const RuleMapping& mapping = MappingOf(record.at("rule"));
  OptimizerConfig config;
  config.type = mapping.type;
  config.learning_rate = RatesOf(record.at("learning_rates").get<std::vector<double>>());
  config.arguments.insert(mapping.implied.begin(), mapping.implied.end());
  for (const auto& [name, value] : record.at("hyperparameters").items()) {
    config.arguments[name] = GoldenNumber(value);
  }
  // A raw op's accumulator belongs to the caller; Cairn's starts with an argument's value.
  if (record.at("initial_slots").contains("accumulator")) {
    config.arguments["initial_accumulator_value"] =
        GoldenDoubles(record["initial_slots"]["accumulator"]).front();
  }
  return config;
}

std::vector<OptimizerRecordSlot> SlotsOf(const Json& record, const Json& tolerance) {
  std::vector<OptimizerRecordSlot> slots;
  for (const auto& [name, initial] : record.at("initial_slots").items()) {
    // Nadam's u_product is a single number, a function of the step; not a slot of an element.
    if (!initial.is_array()) continue;
    OptimizerRecordSlot slot;
    slot.name = name;
    const std::vector<float> values = GoldenFloats(initial);
    slot.initial = values.front();
    const bool uniform = std::all_of(values.begin(), values.end(),
                                     [&](float value) { return value == values.front(); });
    if (!uniform) throw UnknownRecord("slot '" + name + "' starts unevenly");
    slot.expected = GoldenFloats(record.at("slots").at(name));
    slot.tolerance = {tolerance.at("slots").at("rtol"), record.at("slot_atol").at(name)};
    slots.push_back(std::move(slot));
  }
  return slots;
}

std::vector<OptimizerRecordStep> StepsOf(const Json& record, const Json& tolerance) {
  const bool sparse = record.contains("pushes");
  const Json& pushes = record.at(sparse ? "pushes" : "gradients");
  std::vector<OptimizerRecordStep> steps;
  for (size_t t = 0; t < pushes.size(); ++t) {
    OptimizerRecordStep step;
    if (sparse) step.ids = pushes[t].at("ids").get<std::vector<int64_t>>();
    step.gradients = GoldenFloats(sparse ? pushes[t].at("gradients") : pushes[t]);
    step.expected = GoldenFloats(record.at("expected").at(t));
    step.tolerance = GoldenTolerance(tolerance.at(t == 0 ? "variable_after_step_1" : "variable"));
    steps.push_back(std::move(step));
  }
  return steps;
}

OptimizerRecord RecordOf(const Json& record, const Json& tolerance) {
  OptimizerRecord out;
  out.name = record.at("name");
  out.not_offered = WhyNotOffered(record);
  out.sparse = record.contains("pushes");
  if (!out.not_offered.empty()) return out;
  const std::string touched = record.value("touched_rows", "all");
  if (touched != "all" && touched != "pushed") {
    throw UnknownRecord("no touched_rows '" + touched + "'");
  }
  out.touched_rows = touched == "all" ? TouchedRows::kAll : TouchedRows::kPushed;
  const Json& initial = record.at("initial");
  out.shape = {static_cast<int64_t>(initial.size())};
  if (out.sparse) out.shape.push_back(static_cast<int64_t>(initial.at(0).size()));
  out.optimizer = ConfigOf(record);
  out.initial = GoldenFloats(initial);
  out.steps = StepsOf(record, tolerance);
  out.slots = SlotsOf(record, tolerance);
  return out;
}

std::vector<OptimizerRecord> RecordsOf(const std::string& file) {
  const Json& golden = GoldenFile(file);
  std::vector<OptimizerRecord> records;
  for (const Json& record : golden.at("cases")) {
    try {
      records.push_back(RecordOf(record, golden.at("tolerance")));
    } catch (const std::exception& error) {
      const std::string name = record.value("name", "?");
      if (IsOwnGolden(file)) {
        throw std::runtime_error(absl::StrCat(file, ", ", name, ": ", error.what()));
      }
      records.push_back({.name = name, .not_offered = error.what()});
    }
  }
  return records;
}

}  // namespace

std::vector<OptimizerRecord> DenseOptimizerRecords() { return RecordsOf("optimizers_dense.json"); }
std::vector<OptimizerRecord> SparseOptimizerRecords() {
  return RecordsOf("optimizers_sparse.json");
}

std::vector<float> SummedGradient(const OptimizerRecord& record, const OptimizerRecordStep& step,
                                  std::vector<bool>* touched) {
  const auto rows = static_cast<size_t>(record.shape.at(0));
  const auto width = static_cast<size_t>(record.shape.at(1));
  std::vector<float> sum(rows * width, 0.0f);
  touched->assign(rows, false);
  for (size_t i = 0; i < step.ids.size(); ++i) {
    const auto row = static_cast<size_t>(step.ids[i]);
    touched->at(row) = true;
    for (size_t c = 0; c < width; ++c) sum[row * width + c] += step.gradients[i * width + c];
  }
  return sum;
}

std::string RecordCounts(const std::vector<OptimizerRecord>& records) {
  std::string list;
  size_t not_offered = 0;
  for (const OptimizerRecord& record : records) {
    if (record.not_offered.empty()) continue;
    ++not_offered;
    absl::StrAppend(&list, "\n  not offered (", record.not_offered, "): ", record.name);
  }
  return absl::StrCat("ran ", records.size() - not_offered, ", not offered ", not_offered, " of ",
                      records.size(), list);
}

}  // namespace cairn::test
