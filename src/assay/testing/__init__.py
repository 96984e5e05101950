"""The testing kit: fakes and checks that plugin authors and our own tests share."""
