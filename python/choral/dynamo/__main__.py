from choral.dynamo.command import main

main()
