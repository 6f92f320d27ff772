// A job's variables as arrays for numpy or for readers of .safetensors.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/variable_spec.h"
#include "worker/client/ps_client.h"

namespace cairn {

// kInvalidArgument: `path` ends in neither .npz nor .safetensors, which ExportVariables writes.
absl::Status CheckExportFile(absl::string_view path);

// Whether it can be made there, asked before hours of work for it; of "" it is. The error, of bad
// input (exit_status.h), names what is in the way.
absl::Status CheckExportPlace(const std::string& path);

// Writes every variable of `specs` to the file `path`, .npz or .safetensors by its end: a dense one
// as NAME, an embedding table as NAME/keys (int64 [rows], ascending) and NAME/values (float32
// [rows, dim]); `vocabulary`, unless empty, as "vocabulary", byte strings of which number i is the
// word of key i. The file is whole or not there.
absl::Status ExportVariables(PsClient& client, absl::Span<const VariableSpec> specs,
                             absl::Span<const std::string> vocabulary, const std::string& path,
                             absl::Duration call_timeout);

}  // namespace cairn
