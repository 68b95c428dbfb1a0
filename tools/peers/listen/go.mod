module peers/listen

go 1.24
