// The files of page/, which the build compiles into the program.
#pragma once

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace cairn {

struct PageFile {
  absl::string_view path;  // "/", "/page.js"
  absl::string_view content_type;
  absl::string_view text;
};

absl::Span<const PageFile> PageFiles();

}  // namespace cairn
