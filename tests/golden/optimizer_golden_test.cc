// Every record of an optimizer that Cairn offers gives the recorded numbers, in process.
#include <iostream>
#include <memory>
#include <vector>

#include "common/optimizer/optimizer.h"
#include "gtest/gtest.h"
#include "tests/support/golden.h"
#include "tests/support/optimizer_records.h"

namespace cairn::test {
namespace {

std::unique_ptr<Optimizer> Make(const OptimizerRecord& record) {
  absl::StatusOr<std::unique_ptr<Optimizer>> made = Optimizer::Create(record.optimizer);
  EXPECT_TRUE(made.ok()) << record.name << ": " << made.status();
  return made.ok() ? *std::move(made) : nullptr;
}

// Value and slots in separate arrays, as in dense stripes.
struct DenseState {
  std::vector<float> value;
  std::vector<std::vector<float>> slots;

  DenseState(const Optimizer& optimizer, const OptimizerRecord& record) : value(record.initial) {
    for (const SlotSpec& slot : optimizer.slots()) {
      slots.emplace_back(value.size(), static_cast<float>(slot.initial_value));
    }
  }
  std::vector<float*> SlotsAt(size_t first) {
    std::vector<float*> at;
    for (std::vector<float>& slot : slots) at.push_back(slot.data() + first);
    return at;
  }
};

// The record's slots are the optimizer's, with the recorded initial and final values.
void ExpectSlots(const OptimizerRecord& record, const Optimizer& optimizer,
                 const std::vector<std::vector<float>>& slots) {
  ASSERT_EQ(optimizer.slots().size(), record.slots.size()) << record.name;
  for (const OptimizerRecordSlot& want : record.slots) {
    bool found = false;
    for (size_t s = 0; s < slots.size(); ++s) {
      if (optimizer.slots()[s].name != want.name) continue;
      found = true;
      EXPECT_EQ(static_cast<float>(optimizer.slots()[s].initial_value), want.initial);
      EXPECT_TRUE(
          AllClose(slots[s], want.expected, want.tolerance, record.name + ", slot " + want.name));
    }
    EXPECT_TRUE(found) << record.name << " has no slot " << want.name;
  }
}

std::string Where(const OptimizerRecord& record, size_t step) {
  return record.name + ", step " + std::to_string(step + 1);
}

void RunDense(const OptimizerRecord& record) {
  const std::unique_ptr<Optimizer> optimizer = Make(record);
  ASSERT_NE(optimizer, nullptr);
  DenseState state(*optimizer, record);
  for (size_t t = 0; t < record.steps.size(); ++t) {
    const OptimizerRecordStep& step = record.steps[t];
    optimizer->Apply(optimizer->Begin(static_cast<int64_t>(t)), state.value.data(),
                     state.SlotsAt(0).data(), step.gradients.data(), state.value.size());
    ASSERT_TRUE(AllClose(state.value, step.expected, step.tolerance, Where(record, t)));
  }
  ExpectSlots(record, *optimizer, state.slots);
}

// The float64 path has the same formulas and must meet the same tolerances.
void RunDenseInDouble(const OptimizerRecord& record) {
  const std::unique_ptr<Optimizer> optimizer = Make(record);
  ASSERT_NE(optimizer, nullptr);
  std::vector<double> value(record.initial.begin(), record.initial.end());
  std::vector<std::vector<double>> slots;
  std::vector<double*> at;
  for (const SlotSpec& slot : optimizer->slots()) {
    slots.emplace_back(value.size(), slot.initial_value);
  }
  for (std::vector<double>& slot : slots) at.push_back(slot.data());
  for (size_t t = 0; t < record.steps.size(); ++t) {
    const OptimizerRecordStep& step = record.steps[t];
    const std::vector<double> gradient(step.gradients.begin(), step.gradients.end());
    optimizer->Apply(optimizer->Begin(static_cast<int64_t>(t)), value.data(), at.data(),
                     gradient.data(), value.size());
    const std::vector<float> got(value.begin(), value.end());
    ASSERT_TRUE(AllClose(got, step.expected, step.tolerance, Where(record, t) + ", float64"));
  }
}

// Pushed rows get Apply, the others ApplyZero, as on a server for a dense variable.
void RunAllRows(const OptimizerRecord& record) {
  const std::unique_ptr<Optimizer> optimizer = Make(record);
  ASSERT_NE(optimizer, nullptr);
  DenseState state(*optimizer, record);
  const auto width = static_cast<size_t>(record.shape[1]);
  for (size_t t = 0; t < record.steps.size(); ++t) {
    const OptimizerRecordStep& step = record.steps[t];
    std::vector<bool> touched;
    const std::vector<float> gradient = SummedGradient(record, step, &touched);
    const UpdateStep constants = optimizer->Begin(static_cast<int64_t>(t));
    for (size_t row = 0; row < touched.size(); ++row) {
      const size_t first = row * width;
      const std::vector<float*> slots = state.SlotsAt(first);
      if (touched[row]) {
        optimizer->Apply(constants, &state.value[first], slots.data(), &gradient[first], width);
      } else {
        optimizer->ApplyZero(constants, &state.value[first], slots.data(), width);
      }
    }
    ASSERT_TRUE(AllClose(state.value, step.expected, step.tolerance, Where(record, t)));
  }
  ExpectSlots(record, *optimizer, state.slots);
}

// Rows in the layout of an embedding table: value, then slots.
void RunPushedRows(const OptimizerRecord& record) {
  const std::unique_ptr<Optimizer> optimizer = Make(record);
  ASSERT_NE(optimizer, nullptr);
  const auto rows = static_cast<size_t>(record.shape[0]);
  const auto width = static_cast<size_t>(record.shape[1]);
  const size_t slot_count = optimizer->slots().size();
  const size_t stride = width * (1 + slot_count);
  std::vector<float> table(rows * stride);
  for (size_t row = 0; row < rows; ++row) {
    std::copy_n(&record.initial[row * width], width, &table[row * stride]);
    for (size_t s = 0; s < slot_count; ++s) {
      std::fill_n(&table[row * stride + (s + 1) * width], width,
                  static_cast<float>(optimizer->slots()[s].initial_value));
    }
  }
  // Part p (0: value, s + 1: slot s) of all rows.
  const auto part = [&](size_t p) {
    std::vector<float> values(rows * width);
    for (size_t row = 0; row < rows; ++row) {
      std::copy_n(&table[row * stride + p * width], width, &values[row * width]);
    }
    return values;
  };
  for (size_t t = 0; t < record.steps.size(); ++t) {
    const OptimizerRecordStep& step = record.steps[t];
    std::vector<bool> touched;
    const std::vector<float> gradient = SummedGradient(record, step, &touched);
    std::vector<float*> pushed;
    std::vector<float> gradients;
    for (size_t row = 0; row < rows; ++row) {
      if (!touched[row]) continue;
      pushed.push_back(&table[row * stride]);
      gradients.insert(gradients.end(), &gradient[row * width], &gradient[row * width] + width);
    }
    optimizer->ApplyRows(optimizer->Begin(static_cast<int64_t>(t)), pushed, width,
                         gradients.data());
    ASSERT_TRUE(AllClose(part(0), step.expected, step.tolerance, Where(record, t)));
  }
  std::vector<std::vector<float>> slots;
  for (size_t s = 0; s < slot_count; ++s) slots.push_back(part(s + 1));
  ExpectSlots(record, *optimizer, slots);
}

TEST(OptimizerGolden, DenseRecordsAreReproduced) {
  SKIP_WITHOUT_GOLDEN("optimizers_dense.json");
  const std::vector<OptimizerRecord> records = DenseOptimizerRecords();
  ASSERT_FALSE(records.empty());
  for (const OptimizerRecord& record : records) {
    if (!record.not_offered.empty()) continue;
    RunDense(record);
    RunDenseInDouble(record);
  }
  std::cout << "optimizers_dense.json: " << RecordCounts(records) << "\n";
}

TEST(OptimizerGolden, SparseRecordsAreReproduced) {
  SKIP_WITHOUT_GOLDEN("optimizers_sparse.json");
  const std::vector<OptimizerRecord> records = SparseOptimizerRecords();
  ASSERT_FALSE(records.empty());
  for (const OptimizerRecord& record : records) {
    if (!record.not_offered.empty()) continue;
    if (record.touched_rows == TouchedRows::kAll) {
      RunAllRows(record);
    } else {
      RunPushedRows(record);
    }
  }
  std::cout << "optimizers_sparse.json: " << RecordCounts(records) << "\n";
}

}  // namespace
}  // namespace cairn::test
