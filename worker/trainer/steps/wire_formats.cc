#include "worker/trainer/steps/wire_formats.h"

#include "common/errors.h"

namespace cairn {

absl::StatusOr<WireFormats> WireFormats::Create(const WireConfig& config, const Model& model) {
  WireFormats formats;
  for (const VariableSpec& spec : model.variables()) {
    const WireFormatConfig& given = WireFormatFor(config, spec.name);
    OfVariable& variable = formats.variables_.emplace_back();
    variable.push = ValueFormatFromName(given.push);
    variable.pull = ValueFormatFromName(given.pull);
    variable.kept_fraction = given.top_k_fraction;
    variable.delta = given.delta_pulls && spec.kind == VariableKind::kDense;
    if (variable.push == ValueFormat::kTopK && spec.kind == VariableKind::kEmbedding) {
      return InvalidArgument(
          "strategy.wire.push: top_k is for dense variables, and ", spec.name,
          " is an embedding table, of which rows are pushed: give it another format in "
          "strategy.wire.per_variable");
    }
  }
  return formats;
}

void WireFormats::SetSources(absl::Span<PushSource> sources) {
  for (size_t i = 0; i < variables_.size(); ++i) {
    OfVariable& variable = variables_[i];
    PushSource& source = sources[i];
    const bool whole = source.part == Part::kWhole;
    // A sparse push of a dense variable already selects its rows.
    if (variable.push == ValueFormat::kTopK && !whole) continue;
    source.format = variable.push;
    source.kept_fraction = variable.kept_fraction;
    const bool feeds_back =
        variable.push == ValueFormat::kInt8 || variable.push == ValueFormat::kTopK;
    if (!feeds_back || !whole) continue;
    variable.residual.resize(source.values.size() / sizeof(float));
    source.residual = absl::MakeSpan(variable.residual);
  }
}

void WireFormats::SetTargets(absl::Span<PullTarget> targets) const {
  for (size_t i = 0; i < variables_.size(); ++i) targets[i].format = variables_[i].pull;
}

}  // namespace cairn
