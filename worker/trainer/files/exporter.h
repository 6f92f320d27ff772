// Exports a job's variables as arrays for numpy or for readers of .safetensors.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/config/job_config.h"
#include "common/variables/variable_spec.h"
#include "worker/client/ps_client.h"

namespace cairn {

// kInvalidArgument: `path` ends neither in .npz nor in .safetensors, the formats of
// ExportVariables.
absl::Status CheckExportFile(absl::string_view path);

// Checks, before hours of training, that the export can be written to `path`; "" is always OK. The
// error, of bad input (exit_status.h), names the obstacle.
absl::Status CheckExportPlace(const std::string& path);

// The contents of an export besides the variables' values.
struct ExportNotes {
  const JobConfig* job = nullptr;  // model and data of the metadata; null: not known
  absl::Span<const std::string> vocabulary;
};

// Writes every variable of `specs` to the file `path`, in the format of its extension, .npz or
// .safetensors: a dense variable as NAME, an embedding table as NAME/keys (int64 [rows], ascending)
// and NAME/values (float32 [rows, dim]); the vocabulary, unless empty, as "vocabulary", byte
// strings, string i for key i; and ExportMetadata. The file is written atomically. An empty path
// writes nothing. `call_timeout` bounds reading one variable from the servers; nothing bounds the
// whole export, or writing the file. May be called concurrently, for different files. If pushes
// continue meanwhile, variables are read at different moments.
//
// Errors: as PsClient::Pull and Scan; of the file system; kInvalidArgument: two arrays would have
// one name, or the format's header cannot hold all names. No new file is left, and an older one
// stays.
absl::Status ExportVariables(PsClient& client, absl::Span<const VariableSpec> specs,
                             const ExportNotes& notes, const std::string& path,
                             absl::Duration call_timeout);

// A JSON object with the facts that the use of the model elsewhere needs
// (examples/USE_ELSEWHERE.md). Most important are the tables' initializers, which give a value to
// keys without a row.
std::string ExportMetadata(absl::Span<const VariableSpec> specs, const ExportNotes& notes);

}  // namespace cairn
