#include "tests/worker/models/local_server.h"

#include <algorithm>
#include <cstdlib>

#include "common/hash.h"
#include "common/shape.h"

namespace cairn::test {

LocalServer::LocalServer(absl::Span<const VariableSpec> specs, const OptimizerConfig& optimizer)
    : optimizer_(Optimizer::Create(optimizer).value()) {
  for (const VariableSpec& spec : specs) {
    Variable variable{.spec = spec};
    if (spec.kind == VariableKind::kDense) {
      variable.dense = Fresh(static_cast<size_t>(ElementCount(spec.shape).value()));
      InitializeDense(spec.initializer, spec.name, spec.shape, 0,
                      absl::MakeSpan(variable.dense.value));
    }
    variables_.push_back(std::move(variable));
  }
}

LocalServer::Cells LocalServer::Fresh(size_t count) const {
  Cells cells{.value = std::vector<float>(count)};
  for (const SlotSpec& slot : optimizer_->slots()) {
    cells.slots.emplace_back(count, static_cast<float>(slot.initial_value));
  }
  return cells;
}

LocalServer::Cells& LocalServer::Row(Variable* variable, int64_t key) {
  const auto found = variable->rows.find(key);
  if (found != variable->rows.end()) return found->second;
  const VariableSpec& spec = variable->spec;
  Cells row = Fresh(static_cast<size_t>(spec.shape.front()));
  InitializeRow(spec.initializer, HashBytes(spec.name), key, absl::MakeSpan(row.value));
  return variable->rows.emplace(key, std::move(row)).first->second;
}

void LocalServer::Pull(StepState* state) {
  for (size_t v = 0; v < variables_.size(); ++v) {
    Variable& variable = variables_[v];
    VariableUse& use = state->uses[v];
    if (use.part == Part::kWhole) {
      use.values.assign(variable.dense.value.begin(), variable.dense.value.end());
      continue;
    }
    float* to = use.values.data();
    const size_t width = static_cast<size_t>(
        use.part == Part::kKeys ? variable.spec.shape.front() : RowWidth(variable.spec.shape));
    for (const int64_t id : use.ids) {
      const float* from = use.part == Part::kKeys
                              ? Row(&variable, id).value.data()
                              : &variable.dense.value[static_cast<size_t>(id) * width];
      to = std::copy_n(from, width, to);
    }
  }
}

void LocalServer::Apply(const UpdateStep& step, Cells* cells, absl::Span<const float> gradient) {
  float* slots[Optimizer::kMaxSlots] = {};
  for (size_t s = 0; s < cells->slots.size(); ++s) slots[s] = cells->slots[s].data();
  optimizer_->Apply(step, cells->value.data(), slots, gradient.data(), gradient.size());
}

void LocalServer::Push(const StepState& state) {
  const UpdateStep step = optimizer_->Begin(updates_++);
  for (size_t v = 0; v < variables_.size(); ++v) {
    Variable& variable = variables_[v];
    const VariableUse& use = state.uses[v];
    const size_t width =
        use.ids.empty() ? use.gradient.size() : use.gradient.size() / use.ids.size();
    if (use.part == Part::kWhole) {
      Apply(step, &variable.dense, use.gradient);
    } else if (use.part == Part::kRows) {
      std::vector<float> whole(variable.dense.value.size(), 0.0f);
      for (size_t i = 0; i < use.ids.size(); ++i) {
        std::copy_n(&use.gradient[i * width], width,
                    &whole[static_cast<size_t>(use.ids[i]) * width]);
      }
      Apply(step, &variable.dense, whole);
    } else {
      for (size_t i = 0; i < use.ids.size(); ++i) {
        Apply(step, &Row(&variable, use.ids[i]), {&use.gradient[i * width], width});
      }
    }
  }
}

const std::vector<float>& LocalServer::Dense(const std::string& name) const {
  for (const Variable& variable : variables_) {
    if (variable.spec.name == name) return variable.dense.value;
  }
  std::abort();
}

}  // namespace cairn::test
