"""What simlora-serve holds on one core: requests and streamed tokens a second, and how late they are."""
