#include "worker/trainer/files/saved_variables.h"

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "common/errors.h"
#include "common/status.h"
#include "worker/ops/tensor_math.h"
#include "worker/strategy/context.h"
#include "worker/trainer/files/safetensors_reader.h"
#include "worker/trainer/files/safetensors_writer.h"

namespace cairn {
namespace {

absl::Status CheckContext(absl::string_view what) {
  // Outside every scope the default strategy's replica context is current, but no replica function
  // runs.
  const std::shared_ptr<ReplicaContext> replica = GetReplicaContext();
  if (replica == nullptr || !HasStrategy()) return absl::OkStatus();
  return FailedPrecondition(
      what, " is called in a replica function: call it outside, once for all replicas");
}

}  // namespace

absl::Status SaveVariables(const Strategy& strategy, const std::string& path,
                           absl::Span<const VariablePtr> variables) {
  RETURN_IF_ERROR(CheckContext("SaveVariables"));
  for (const VariablePtr& variable : variables) {
    RETURN_IF_ERROR(CheckVariable("SaveVariables", variable));
  }
  std::vector<std::string> names;
  for (const VariablePtr& variable : variables) names.push_back(variable->name());
  absl::Status written;
  std::unique_ptr<SafetensorsWriter> file;
  if (strategy.should_checkpoint()) {
    absl::StatusOr<std::unique_ptr<SafetensorsWriter>> created =
        SafetensorsWriter::Create(path, names);
    written = created.status();
    if (created.ok()) file = *std::move(created);
  }
  for (const VariablePtr& variable : variables) {
    // Every worker reads, even if its file failed: the read may be a collective.
    ASSIGN_OR_RETURN(const Tensor read, variable->Read());
    ASSIGN_OR_RETURN(const Tensor value, HostTensor(read));
    if (file == nullptr || !written.ok()) continue;
    if (variable->name().empty()) {
      written = absl::InvalidArgumentError("a variable to be saved has no name; give it one");
      continue;
    }
    written =
        file->Add(variable->name(), value.dtype(), value.shape(),
                  absl::MakeConstSpan(static_cast<const std::byte*>(value.data()), value.bytes()));
  }
  RETURN_IF_ERROR(written);
  return file != nullptr ? file->Finish() : absl::OkStatus();
}

absl::Status RestoreVariables(const std::string& path, absl::Span<const VariablePtr> variables) {
  RETURN_IF_ERROR(CheckContext("RestoreVariables"));
  for (const VariablePtr& variable : variables) {
    RETURN_IF_ERROR(CheckVariable("RestoreVariables", variable));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsReader> file, SafetensorsReader::Open(path));
  std::vector<SafetensorsReader::Array> arrays;
  for (const VariablePtr& variable : variables) {
    ASSIGN_OR_RETURN(arrays.emplace_back(),
                     file->Find(variable->name(), variable->dtype(), variable->shape()));
  }
  for (size_t i = 0; i < arrays.size(); ++i) {
    Tensor value = Tensor::Uninitialized(variables[i]->dtype(), variables[i]->shape());
    RETURN_IF_ERROR(file->Read(
        arrays[i], absl::MakeSpan(static_cast<std::byte*>(value.mutable_data()), value.bytes())));
    RETURN_IF_ERROR(variables[i]->Assign(std::move(value)));
  }
  return absl::OkStatus();
}

}  // namespace cairn
