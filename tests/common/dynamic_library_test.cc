// Libraries loaded at run time: functions that exist can be called, missing ones are named.
#include "common/dynamic_library.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace cairn {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr char kMath[] = "libm.so.6";

TEST(DynamicLibrary, CallsTheFunctionsThatItFinds) {
  DynamicLibrary library("the C library's mathematics", kMath);
  const DynamicFunction<double(double)> cosine(library, "cos");
  ASSERT_OK(library.status());
  EXPECT_EQ(cosine(0.5), std::cos(0.5));
}

TEST(DynamicLibrary, NamesAMissingLibrary) {
  DynamicLibrary library("Nothing", "libcairn-nothing.so.7");
  const DynamicFunction<void()> function(library, "nothing");
  EXPECT_THAT(library.status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("Nothing is missing (libcairn-nothing.so.7: "),
                             HasSubstr("name its directory in LD_LIBRARY_PATH"))));
}

TEST(DynamicLibrary, NamesTheFirstMissingFunction) {
  DynamicLibrary library("Mathematics", kMath);
  const DynamicFunction<void()> first(library, "cairn_first");
  const DynamicFunction<void()> second(library, "cairn_second");
  EXPECT_THAT(library.status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "libm.so.6 has no cairn_first: a newer Mathematics is needed"));
}

}  // namespace
}  // namespace cairn
