#include <gmock/gmock.h>

#include "tools/doctor.h"

namespace choral::tools {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

MachineFacts with_driver() {
  MachineFacts machine;
  machine.nvidia_driver = "580.159.04";
  return machine;
}

TEST(LookForGpu, SaysNothingWhereThereIsNone) {
  DoctorReport report;
  look_for_gpu(MachineFacts{}, report);
  EXPECT_THAT(report.findings, IsEmpty());
}

TEST(LookForGpu, SaysHowToUseOneThatIsIdle) {
  DoctorReport report;
  report.fine("device", "device: cpu (nothing else is there), 16 threads");
  look_for_gpu(with_driver(), report);
  ASSERT_THAT(report.findings, SizeIs(2));
  EXPECT_EQ(report.findings[1].verdict, Verdict::kNotice);
  EXPECT_THAT(report.findings[1].text, HasSubstr("580.159.04"));
  EXPECT_THAT(report.findings[1].cure, AllOf(HasSubstr("./dev build cuda"), HasSubstr("choral-cuda")));
}

TEST(LookForGpu, LeavesAPlugInToSayItself) {
  for (const char* note :
       {"device: cuda (the plug-in with the highest score), 16 threads", "device not used: cuda: no NVIDIA driver"}) {
    DoctorReport report;
    report.fine("device", note);
    look_for_gpu(with_driver(), report);
    EXPECT_THAT(report.findings, SizeIs(1)) << note;
  }
}

}  // namespace
}  // namespace choral::tools
