// A job's variables as arrays for numpy or for readers of .safetensors.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/config/job_config.h"
#include "common/variables/variable_spec.h"
#include "worker/client/ps_client.h"

namespace cairn {

// kInvalidArgument: `path` ends in neither .npz nor .safetensors, which ExportVariables writes.
absl::Status CheckExportFile(absl::string_view path);

// Whether it can be made there, asked before hours of work for it; of "" it is. The error, of bad
// input (exit_status.h), names what is in the way.
absl::Status CheckExportPlace(const std::string& path);

// What an export holds beside the variables' values.
struct ExportNotes {
  const JobConfig* job = nullptr;  // model and data of the metadata; null: not known
  absl::Span<const std::string> vocabulary;
};

// Writes every variable of `specs` to the file `path`, .npz or .safetensors by its end: a dense one
// as NAME, an embedding table as NAME/keys (int64 [rows], ascending) and NAME/values (float32
// [rows, dim]); the vocabulary, unless empty, as "vocabulary", byte strings of which number i is
// the word of key i; and ExportMetadata. The file is whole or not there. Empty: writes nothing.
absl::Status ExportVariables(PsClient& client, absl::Span<const VariableSpec> specs,
                             const ExportNotes& notes, const std::string& path,
                             absl::Duration call_timeout);

// What the use of the model elsewhere needs (examples/USE_ELSEWHERE.md), as a JSON object: the
// initializers of tables above all, which give keys without a row their value.
std::string ExportMetadata(absl::Span<const VariableSpec> specs, const ExportNotes& notes);

}  // namespace cairn
