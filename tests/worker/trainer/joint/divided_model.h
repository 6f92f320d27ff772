// The reference for a model divided over replicas: the model itself on the whole batch.
#pragma once

#include <cmath>
#include <cstddef>

#include "gtest/gtest.h"
#include "worker/models/model.h"

namespace cairn::test {

// Values like a pull's: the same for each id under any plan.
inline void FillValues(StepState* state) {
  for (VariableUse& use : state->uses) {
    const size_t rows = use.part == Part::kWhole ? 1 : use.ids.size();
    const size_t width = rows == 0 ? 0 : use.values.size() / rows;
    for (size_t i = 0; i < use.values.size(); ++i) {
      const double id = use.part == Part::kWhole ? 0 : static_cast<double>(use.ids[i / width]);
      use.values[i] = static_cast<float>(0.3 * std::sin(static_cast<double>(i % width) + id));
    }
  }
}

inline void ExpectSameGradients(const StepState& got, const StepState& want, const Model& model,
                                double tolerance = 1e-5) {
  for (size_t v = 0; v < want.uses.size(); ++v) {
    ASSERT_EQ(got.uses[v].gradient.size(), want.uses[v].gradient.size());
    for (size_t i = 0; i < want.uses[v].gradient.size(); ++i) {
      const double wanted = want.uses[v].gradient[i];
      ASSERT_NEAR(got.uses[v].gradient[i], wanted, tolerance * (1 + std::abs(wanted)))
          << model.variables()[v].name << "[" << i << "]";
    }
  }
}

}  // namespace cairn::test
