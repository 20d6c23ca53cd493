"""One named limit stands for one upstream; every process on every host asks Redis first."""

DISTRIBUTION = "rewardpool"
