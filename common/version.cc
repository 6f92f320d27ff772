#include "common/version.h"

#include "absl/strings/str_cat.h"
#include "common/revision.h"

namespace cairn {
namespace {

std::string Compiler() {
#if defined(__clang__)
  return absl::StrCat("Clang ", __clang_major__, ".", __clang_minor__, ".", __clang_patchlevel__);
#else
  return absl::StrCat("GCC ", __GNUC__, ".", __GNUC_MINOR__, ".", __GNUC_PATCHLEVEL__);
#endif
}

}  // namespace

Version ProgramVersion() {
  return {.number = CAIRN_VERSION,
          .revision = CAIRN_REVISION,
          .compiler = Compiler(),
          .build = CAIRN_BUILD};
}

std::string VersionText(absl::string_view program) {
  const Version version = ProgramVersion();
  return absl::StrCat(program, " ", version.number, "\nrevision ", version.revision,
                      "\nbuilt with ", version.compiler, ", ", version.build, "\nprotocol ",
                      kWireProtocol, ", store format ", kStoreFormat, ", checkpoint format ",
                      kCheckpointFormat, "\n");
}

}  // namespace cairn
